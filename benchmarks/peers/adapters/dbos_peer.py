"""dbos: a queue whose jobs are workflows without steps, polled every 20 ms."""

import logging
import sys
import threading

import common
from dbos import DBOS, DBOSClient

CONCURRENCY = 100
POLL_SECONDS = 0.02
URL = common.database_url("postgresql+psycopg")
CONFIG = {
    "name": "peer",
    "system_database_url": URL,
    "run_admin_server": False,
    "log_level": "ERROR",
    "application_version": "1",
}
OPTIONS = {"queue_name": "jobs", "workflow_name": "job", "app_version": "1"}

logging.disable(logging.WARNING)


@DBOS.workflow(name="job")
async def job(payload):
    await common.ahandle(payload)


def _launch():
    DBOS(config=CONFIG)
    DBOS.launch()
    DBOS.register_queue("jobs", worker_concurrency=CONCURRENCY, polling_interval_sec=POLL_SECONDS)


def migrate():
    _launch()
    DBOS.destroy()


def publish(payloads):
    client = DBOSClient(system_database_url=URL)
    for payload in payloads:
        client.enqueue(OPTIONS, payload)


def work(processes):
    if processes > 1:
        common.processes(processes, [sys.executable, common.script(), "work", "1"])
    _launch()
    threading.Event().wait()


if __name__ == "__main__":
    common.run(migrate, publish, None, work)
