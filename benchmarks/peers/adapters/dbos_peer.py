"""dbos: a queue whose jobs are workflows without steps, polled every 20 ms."""

import sys
import threading

import common
from dbos import DBOS, DBOSClient
from dbos_common import CONFIG, POLL_SECONDS, URL

CONCURRENCY = 100
OPTIONS = {"queue_name": "jobs", "workflow_name": "job", "app_version": "1"}


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
