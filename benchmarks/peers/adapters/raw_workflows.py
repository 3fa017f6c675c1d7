"""Raw psycopg: the statements of the steps in the same transactions, without a library.

Every run is one job with a lease token. A thread begins it and writes its steps with the statements
of pulljobs, prepared. So the rate is what the server and psycopg can do on this machine.
"""

import asyncio
import multiprocessing
import threading
import uuid

import psycopg
import pulljobs_workflows
import workflow_common as shared

from pulljobs.engine.sql import bound, statement

THREADS = 8
TAKE = """
UPDATE pulljobs_job
SET state = 'INFLIGHT', lease_token = %s
WHERE id = (
    SELECT id FROM pulljobs_job WHERE state = 'QUEUED' ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED
)
RETURNING id, message_id
"""
DONE = "DELETE FROM pulljobs_job WHERE id = %s"


def work(processes):
    children = [multiprocessing.Process(target=work_in_threads) for _ in range(processes)]
    for child in children:
        child.start()
    for child in children:
        child.join()


def work_in_threads():
    threads = [threading.Thread(target=work_in_thread) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def work_in_thread():
    with psycopg.connect(autocommit=True, prepare_threshold=0) as connection:
        token = uuid.uuid4()
        while (row := connection.execute(TAKE, [token]).fetchone()) is not None:
            do_run(connection, *row, token)
            connection.execute(DONE, [row[0]])


def do_run(connection, run_id, message_id, token):
    run = {
        "run_id": run_id,
        "message_id": message_id,
        "lease_token": token,
        "workflow": "raw",
        "version": 1,
        "oldest_version": 1,
    }
    do(connection, "begin_run", run)
    for number in range(shared.STEPS):
        step = {
            "run_id": run_id,
            "lease_token": token,
            "name": "effect",
            "number": number + 1,
            "position": number + 1,
            "kind": "atomic",
            "function": "",
            "seconds": 0.0,
            "is_ended": True,
            "result": str(number),
            "failure": None,
            "batch_id": None,
            "children": None,
        }
        with connection.transaction():
            connection.execute(shared.INSERT, [str(run_id), number])
            do(connection, "write_step", step)


def do(connection, name, params):
    cursor = psycopg.RawCursor(connection)
    cursor.execute(*bound(statement(name), params), binary=True)
    return cursor.fetchall()


if __name__ == "__main__":
    asyncio.run(
        shared.run(
            pulljobs_workflows.migrate,
            pulljobs_workflows.start,
            pulljobs_workflows.start_many,
            pulljobs_workflows.send,
            work,
        )
    )
