"""Celery with the SQL transport of kombu: no results, and a worker deletes messages it takes.

The solo pool, for it was quicker than prefork and threads: one worker takes jobs one by one, and
its children wait for it.
"""

import sys

import common
from celery import Celery

PREFETCH = 4

app = Celery("celery_peer", broker=f"sqla+{common.database_url('postgresql+psycopg2')}")
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = PREFETCH
app.conf.broker_connection_retry_on_startup = True


@app.task(name="job")
def job(payload):
    common.handle(payload)


def migrate():
    """Create the tables and the queue by their first use."""
    with app.connection_for_write() as connection:
        connection.default_channel.queue_declare("celery")


def publish(payloads):
    with app.producer_pool.acquire() as producer:
        for payload in payloads:
            job.apply_async([payload], producer=producer)


def work(processes):
    command = [
        sys.executable, "-m", "celery", "-A", "celery_peer", "worker", "--pool", "solo",
        "--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "WARNING",
    ]  # fmt: skip
    common.processes(processes, command)


if __name__ == "__main__":
    common.run(migrate, publish, None, work)
