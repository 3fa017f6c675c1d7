"""dbos: runs come from a queue, and a step commits with its effect by a datasource of dbos."""

import asyncio
import functools
import sys
import threading

import common
import sqlalchemy
import workflow_common as shared
from dbos import DBOS, DBOSClient, SQLAlchemyDatasource
from dbos_common import CONFIG, POLL_SECONDS, URL

CONCURRENCY = 32
_source = None


def _insert(run, number):
    _source.sql_session().execute(
        sqlalchemy.text("INSERT INTO effect (run, step) VALUES (:run, :step)"),
        {"run": run, "step": number},
    )


@DBOS.workflow()
def steps(run):
    for number in range(shared.STEPS):
        _source.run_tx_step(
            {"name": "effect", "isolation_level": "READ COMMITTED"}, _insert, str(run), number
        )


@DBOS.workflow()
def start_run(run):
    shared.note("resumed", run)


@DBOS.workflow()
def signal(run):
    shared.note("waiting", run)
    DBOS.recv("go", timeout_seconds=shared.PATIENCE)
    shared.note("resumed", run)


WORKFLOWS = {"steps": "steps", "start": "start_run", "signal": "signal"}


@functools.cache
def _client():
    return DBOSClient(system_database_url=URL)


def _launch():
    global _source
    DBOS(config={**CONFIG, "notification_listener_polling_interval_sec": POLL_SECONDS})
    _source = SQLAlchemyDatasource.create(
        URL, engine_kwargs={"pool_size": CONCURRENCY, "max_overflow": 0}
    )
    DBOS.launch()
    DBOS.register_queue("runs", worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_SECONDS)


def migrate():
    _launch()
    DBOS.destroy()


def start(kind, run):
    options = {
        "queue_name": "runs",
        "workflow_name": WORKFLOWS[kind],
        "workflow_id": f"{kind}-{run}",
        "app_version": CONFIG["application_version"],
    }
    _client().enqueue(options, run)


def start_many(kind, runs):
    for run in range(runs):
        start(kind, run)


def send(run):
    _client().send(f"signal-{run}", {}, "go")


def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    _launch()
    threading.Event().wait()


if __name__ == "__main__":
    asyncio.run(shared.run(migrate, start, start_many, send, work))
