"""Time of a page of the endpoint `queued-jobs`: at two backlogs, and after many settlements."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psycopg
from django.db import connection

from benchmarks.database import EMPTIED, consumer, own_database, query
from benchmarks.report import Table, percentiles, print_report
from pulljobs import pulling
from pulljobs.api.broker import listing
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer
from pulljobs.pulling import Puller
from pulljobs.storage import messages

PAGE: Final = 26
"""Jobs on a page, and one more that shows whether there is a next page."""
PRIORITIES: Final = 10
CLAIM: Final = 500
FILL: Final = """
WITH message AS (
    INSERT INTO pulljobs_message
        (channel_id, published_at, priority, content_type, headers, payload)
    SELECT %(channel)s, now(), n %% %(priorities)s, 'text/plain', '{}', 'payload'
    FROM generate_series(1, %(count)s) AS n
    RETURNING id, priority
)
INSERT INTO pulljobs_job
    (consumer_id, message_id, available_at, priority, state, retry_count, deliveries)
SELECT %(consumer)s, id, clock_timestamp() + %(due)s::interval, priority, 'QUEUED', 0, 0
FROM message
"""


def run(options: argparse.Namespace) -> None:
    """Print the times of a page at a small and at a large backlog, and after many settlements.

    While jobs of the large backlog are settled, another transaction keeps their rows from vacuum.
    """
    with own_database():
        rows = {
            f"{options.small:,} queued": _filled(options.small, options.delayed, options.rounds),
            f"{options.large:,} queued": _filled(options.large, options.delayed, options.rounds),
        }
        with _held_snapshot():
            _settle(options.settled, options.large)
            first = _timed(1)
            rows[f"{options.settled:,} of them settled, a snapshot held"] = _timed(options.rounds)
    table: Table = []
    for name, seconds in rows.items():
        p50, p99 = percentiles(seconds)
        best = min(seconds) * 1000
        table.append({"backlog": name, "best ms": best, "p50 ms": p50, "p99 ms": p99})
    figures: dict[str, Any] = {
        f"ratio_{backlog}_{kind}": round(row[f"{kind} ms"] / table[0][f"{kind} ms"], 2)
        for backlog, row in zip(("large", "settled"), table[1:], strict=True)
        for kind in ("best", "p50")
    }
    figures["first_page_after_settling_ms"] = round(first[0] * 1000, 1)
    print_report({"Listing": table}, figures, as_json=options.json)


def _filled(count: int, delayed: int, rounds: int) -> list[float]:
    """Queue `count` due jobs and `delayed` later ones. Return the seconds of `rounds` requests."""
    query(f"TRUNCATE {EMPTIED}, pulljobs_message")
    noop = consumer()
    common = {"channel": noop.channel_id, "consumer": noop.pk, "priorities": PRIORITIES}
    for due, many in (("0", count), ("1 day", delayed)):
        with connection.cursor() as cursor:
            cursor.execute(FILL, {**common, "count": many, "due": due})
    query("VACUUM ANALYZE pulljobs_job")
    print(f"{count:,} queued", file=sys.stderr)
    _page(noop)
    return _timed(rounds)


def _settle(count: int, queued: int) -> None:
    """Claim and deliver `count` jobs as a worker does, or all `queued` jobs if those are fewer."""
    puller, settled = Puller("default", consumer()), 0
    while settled < min(count, queued):
        claim = puller.claim(CLAIM)
        if claim.taken is None:
            continue
        held = [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
        settled += len(pulling.finish([outcomes.deliver(job) for job in held]).states)
    print(f"{settled:,} settled", file=sys.stderr)


def _timed(rounds: int) -> list[float]:
    noop, times = consumer(), []
    for _ in range(rounds):
        started = time.perf_counter()
        _page(noop)
        times.append(time.perf_counter() - started)
    return times


def _page(listed: Consumer) -> None:
    page = listing.queued(listed.pk, PAGE)
    assert len(page) == PAGE
    assert len(messages.read_messages("default", [job.message_id for job in page])) == PAGE


@contextmanager
def _held_snapshot() -> Iterator[None]:
    """Hold a snapshot, so that no settled row can be vacuumed inside the block."""
    params = connection.get_connection_params()
    params.pop("cursor_factory", None)
    params.pop("context", None)
    with psycopg.connect(**params) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pulljobs_channel")
        yield
