"""Resets and delays between a client and a live server, judged by the checker of histories."""

import os
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from benchmarks.faults import history, tables
from benchmarks.faults.checker import Case, find_faults
from benchmarks.faults.history import ENDED, PUBLISHED, STARTED, Entry, HistoryWriter
from benchmarks.faults.roles.recorder import Recorder
from pulljobs import ids, pulling
from pulljobs.client import Backoff, Connection, Consumer, Producer, Retry, full_jitter, linear
from pulljobs.models import ArchivedJob
from tests.api.leases.processes import Site
from tests.client.conftest import subscribe
from tests.client.names import SHOP, SUBSCRIPTION
from tests.client.proxy import Proxy, proxy_before
from tests.client.test_flow import running
from tests.sessions import Thread, query, session, wait_until

JOBS = int(os.environ.get("PULLJOBS_TEST_CLIENT_JOBS", "150"))
RESETS, DELAY, HELD = (0.1, 0.5, 50) if JOBS >= 1000 else (0.2, 0.03, 10)
CONCURRENCY = 8

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]


def test_the_history_is_clean_under_resets_and_delay(served: Site, tmp_path: Path) -> None:
    """Requests are cut, half of them after the commit, and no rule of the checker is broken."""
    subscribe(
        lease_duration=timedelta(seconds=20), max_retries=100, max_deliveries=1000, retry_jitter=0.0
    )
    with proxy_before(served.base) as proxy, reaping():
        proxy.resets, proxy.delay = RESETS, DELAY
        start = time.monotonic()
        published = publish(proxy)
        consume(proxy, tmp_path)
        took = time.monotonic() - start
        cut = proxy.cut
    jobs = job_ids()
    entries = [Entry(jobs.get(id, -1)) for id in published]
    HistoryWriter(tmp_path, "publisher").write(PUBLISHED, entries)
    with session() as other:
        case = Case(history.read_history(tmp_path), tables.read_tables(other), CONCURRENCY)
    claims = sum(line.event == history.CLAIMED for line in case.lines)
    print(f"{len(published)} jobs, {claims} claims, {cut} cut, {DELAY} s late, in {took:.0f} s")
    assert find_faults(case) == {}
    assert len(published) == len(case.tables.archived) == JOBS
    assert cut > 1


def publish(proxy: Proxy) -> list[str]:
    """Publish messages. Return the ids of the confirmed messages."""
    with Producer(proxy.url, "orders", "shop", **SHOP) as producer:
        return [
            receipt.message_id
            for start in range(0, JOBS, 10)
            for receipt in producer.publish_many([b"x"] * min(10, JOBS - start))
        ]


def consume(proxy: Proxy, directory: Path) -> None:
    """Consume until all jobs are done. Some handlers fail, and some are slow."""
    transport = Recorder(HistoryWriter(directory, "client"))

    def handle(message: Any) -> None:
        entry = Entry(ids.decode(message.id), message.job.lease_token)
        transport.writer.write(STARTED, [entry])
        time.sleep(random.expovariate(100))
        fate = random.random()
        if fate < 0.1:
            raise Retry(after=timedelta())
        if fate < 0.15:
            raise ValueError("broken")
        transport.writer.write(ENDED, [entry])

    consumer = Consumer(
        handle,
        proxy.url,
        subscription=SUBSCRIPTION,
        max_in_flight=HELD,
        concurrency=CONCURRENCY,
        max_attempts=0,
        requeue_delay=lambda attempts: 0.0,
        backoff=Backoff(initial=0),
        reconnect=full_jitter(linear(0.2, 1.0), least=0.05),
        connection=Connection(transport=transport, gzip_from=None),
    )
    with running(consumer):
        wait_until(lambda: delivered() == JOBS, 60 + JOBS / 5)


def delivered() -> int:
    return ArchivedJob.objects.filter(state="DELIVERED").values("job_id").distinct().count()


def job_ids() -> dict[str, int]:
    """Return the ids of the jobs, by the ids that the producer gave their messages."""
    return dict(
        query(
            "SELECT client_message_id, job_id FROM pulljobs_archived_job AS archived"
            " JOIN pulljobs_message AS message ON message.id = archived.message_id"
        )
    )


@contextmanager
def reaping() -> Iterator[None]:
    """Reap expired leases during the block, as a worker next to the server does."""
    ended = threading.Event()

    def reap() -> None:
        while not ended.wait(0.3):
            pulling.reap()

    thread = Thread(reap)
    try:
        yield
    finally:
        ended.set()
        thread.result()
