"""Keys that take turns: the wait of fresh keys behind a backlog, and shares by weight."""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.contenders import worker_command
from benchmarks.database import CHANNEL, EMPTIED, consumer, own_database, query, store_messages
from benchmarks.report import Table, percentiles, print_report
from pulljobs import weights
from pulljobs.models import Consumer
from pulljobs.publishing import publish

BATCH: Final = 500
QUEUE: Final = (
    "INSERT INTO pulljobs_job (consumer_id, message_id, available_at, priority, state, turn_key,"
    " retry_count, deliveries) SELECT consumer_id, message_id, available_at, priority, 'QUEUED',"
    " {key}, 0, 0 FROM queued ORDER BY id"
)
BEGUN: Final = "SELECT count(*) FROM (SELECT FROM pulljobs_archived_job LIMIT 10000) AS archived"
ENOUGH: Final = 10_000
START_SECONDS: Final = 120
WAITS: Final = (
    "SELECT date_part('epoch', claimed_at - created_at),"
    " date_part('epoch', started_at - created_at)"
    " FROM pulljobs_archived_job WHERE job_id = ANY(ARRAY[{ids}]::bigint[])"
)
SHARES: Final = (
    "SELECT count(*) FILTER (WHERE number % 2 = 0), count(*) FILTER (WHERE number % 2 = 1) FROM"
    " (SELECT message_id FROM pulljobs_archived_job ORDER BY claimed_at LIMIT {jobs}) AS first"
    " JOIN numbered ON numbered.id = first.message_id"
)


def run(options: argparse.Namespace) -> None:
    """Measure waits and shares while one worker process is at work."""
    with own_database():
        Consumer.objects.update(fair_by_key=True)
        tables = {
            "Fresh keys behind a backlog": _waits(options),
            "Shares of keys with weights 1 and 3": _shares(options),
        }
        print_report(tables, {}, as_json=options.json)


def _waits(options: argparse.Namespace) -> Table:
    _queue(options.backlog, "'a'")
    with _worker():
        ids, begun_at, settled = [], time.monotonic(), _count_settled()
        for number in range(options.fresh):
            started = time.monotonic()
            ids += publish(CHANNEL, b"x", key=f"fresh {number}").job_ids
            time.sleep(max(0.0, 1 / options.rate - (time.monotonic() - started)))
        time.sleep(1)
        rate = (_count_settled() - settled) / (time.monotonic() - begun_at)
        print(f"{rate:,.0f} jobs a second were settled meanwhile", file=sys.stderr)
    rows = query(WAITS.format(ids=", ".join(map(str, ids))))
    claims, starts = ([float(str(value)) for value in column] for column in zip(*rows, strict=True))
    table: Table = []
    for title, seconds in (("claimed", claims), ("started", starts)):
        p50, p99 = percentiles(seconds)
        table.append({"until": title, "jobs": len(seconds), "p50 ms": p50, "p99 ms": p99})
    return table


def _count_settled() -> int:
    [(count,)] = query("SELECT count(*) FROM pulljobs_archived_job")
    return int(str(count))


def _shares(options: argparse.Namespace) -> Table:
    _queue(options.shared, "CASE message_id % 2 WHEN 0 THEN 'light' ELSE 'heavy' END")
    query("DROP VIEW IF EXISTS numbered")
    query("CREATE VIEW numbered AS SELECT id, id AS number FROM pulljobs_message")
    weights.set_weight(consumer(), "heavy", 3)
    with _worker():
        time.sleep(1)
    [(light, heavy)] = query(SHARES.format(jobs=ENOUGH))
    share = int(str(heavy)) / max(1, int(str(light)))
    return [{"jobs": ENOUGH, "weight 1": light, "weight 3": heavy, "ratio": share}]


def _queue(jobs: int, key: str) -> None:
    store_messages(jobs)
    query(f"TRUNCATE {EMPTIED}, pulljobs_flow_key")
    query(QUEUE.format(key=key))
    query("VACUUM ANALYZE pulljobs_job")
    query("CHECKPOINT")


@contextmanager
def _worker() -> Iterator[None]:
    """Run a worker process. The block begins once the worker has settled many jobs."""
    command = worker_command(BATCH, held=8 * BATCH)
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "benchmarks.settings"}
    process = subprocess.Popen(command, env=environment)
    try:
        deadline = time.monotonic() + START_SECONDS
        while query(BEGUN) != [(ENOUGH,)]:
            if time.monotonic() > deadline or process.poll() is not None:
                raise SystemExit("The worker settled no jobs: its messages are above.")
            time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait()
        print("the worker has ended", file=sys.stderr)
