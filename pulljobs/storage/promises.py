"""What the tables must show, whoever did what: looked for page by page, in short transactions.

It reads only, waits for no lock, holds no snapshot for longer than a page, and goes through indexes
whatever the statistics say, so that it may run beside the work.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from django.db import connections, transaction
from django.utils import timezone

from pulljobs import ids
from pulljobs.engine.sql import Row
from pulljobs.storage import partitions
from pulljobs.storage.statements import run

PAGE: Final = 1_000
LAST: Final = 2**63 - 1
MOST_MILLISECONDS: Final = 2**31 - 1
OVERTAKEN: Final = timedelta(minutes=1)
SETTLED: Final = timedelta(hours=1)
"""How long a consumer's row must have stood when a message was published for it to count."""
CLOCKS: Final = timedelta(hours=1)
"""How far an application's clock may be from the database's."""

PROMISES: Final = {
    "job_is_legal": "A job is QUEUED, or INFLIGHT and leased, or DEAD for a reason.",
    "in_flight_is_leased": "A job in flight is named by a lease of its consumer, under its token.",
    "leased_once": "No two leases hold one job.",
    "job_has_its_message": "The message of a live job is there.",
    "job_has_its_consumer": "The row of a live job's consumer is there.",
    "delivered_is_gone": "A job that was delivered is no live job any more.",
    "dead_is_remembered": "The death of a DEAD job is in the archive.",
    "one_in_flight_a_key": "Of a key of an exclusive consumer one job at most is in flight.",
    "blocked_behind_a_job": "A job that waits for its key waits for another job.",
    "claimed_in_turn": "No job waits while later ones of its priority are claimed.",
    "lease_ends": "A lease ends after its claim and by its hard end.",
    "ended_lease_is_reaped": "What a lease held is given back soon after its end.",
    "leased_job_is_known": "Every job that a lease names is live or in the archive.",
    "settlement_is_legal": "A settlement is DELIVERED, or DEAD for a reason.",
    "claim_settles_once": "A claim of a job settles it at most once.",
    "delivered_once": "A job is delivered at most once.",
    "consumer_has_its_job": "A message gave every consumer of its channel a job.",
}
PASSING: Final = frozenset(
    {
        "one_in_flight_a_key",
        "blocked_behind_a_job",
        "claimed_in_turn",
        "ended_lease_is_reaped",
    }
)
"""What may be so for a moment: broken only if it still is a while later."""
KINDS: Final = {"jobs": False, "leases": False, "archive": True, "messages": True}
"""Tables that are looked at, and whether the newest rows come first."""


Told = Callable[[int], object]


class Limits(NamedTuple):
    """`rows` of each table at the most; None: all of them."""

    rows: int | None
    page_timeout: timedelta
    overdue: timedelta
    """How long after its end a lease may wait for a reaper."""
    retention: timedelta | None


@dataclass
class Found:
    """Rows looked at, by table; ids that break a promise, by its name."""

    looked_at: dict[str, int] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    """Tables that had more rows than were looked at."""
    broken: dict[str, set[int]] = field(default_factory=dict)

    def only(self, names: Collection[str]) -> dict[str, set[int]]:
        return {name: found for name, found in self.broken.items() if name in names}


def look(using: str, limits: Limits, told: Told = lambda rows: None) -> Found:
    """One look at every table. Raise OperationalError where a page takes too long.

    `told` is called with the rows of each page.
    """
    found = Found()
    for table, newest_first in KINDS.items():
        after = LAST if newest_first else 0
        looked_at = 0
        for page in _pages(using, table, after, limits):
            looked_at += page.looked_at
            told(page.looked_at)
            for name, id in zip(page.promises, page.ids, strict=True):
                found.broken.setdefault(name, set()).add(id)
            if page.reached is not None and limits.rows is not None and looked_at >= limits.rows:
                found.unseen.append(table)
                break
        found.looked_at[table] = looked_at
    return found


def confirmed(
    using: str, limits: Limits, patience: timedelta, told: Told = lambda rows: None
) -> Found:
    """A look, and where it finds what may be passing, a second one after that time."""
    found = look(using, limits, told)
    if suspected := found.only(PASSING):
        time.sleep(patience.total_seconds())
        again = look(using, limits).broken
        for name, ids_before in suspected.items():
            still = ids_before & again.get(name, set())
            found.broken = {**found.broken, name: still}
    found.broken = {name: ids for name, ids in found.broken.items() if ids}
    return found


def _pages(using: str, table: str, after: int, limits: Limits) -> Iterator[Row]:
    params = {
        "wanted": PAGE,
        "since": _since(using, limits.retention),
        "overtaken": OVERTAKEN,
        "overdue": limits.overdue,
        "settled": SETTLED,
    }
    reached: int | None = after
    while reached is not None:
        page = _page(using, table, {**params, "after": reached}, limits)
        reached = page.reached
        yield page


def _since(using: str, retention: timedelta | None) -> int:
    """Whatever has lower ids may have been settled on a day that was dropped, or will be soon."""
    days = partitions.existing(using, "pulljobs_archived_job")
    # Those without a gap up to the last one: earlier ones may have been restored.
    whole = [
        day
        for back, day in enumerate(reversed(days))
        if day.day == days[-1].day - timedelta(days=back)
    ]
    since = whole[-1].bounds[0] if whole else 0
    if retention is None:
        return since
    return max(since, ids.first_of(timezone.now() - retention + CLOCKS))


def _page(using: str, table: str, params: dict[str, Any], limits: Limits) -> Row:
    with transaction.atomic(using=using):
        read_only(using, limits.page_timeout)
        [row] = run(using, f"verify_{table}", params)
    return row


def read_only(using: str, timeout: timedelta) -> None:
    """For the rest of the transaction: no writes, no long waits, and plans through indexes."""
    # PostgreSQL takes 0 for no limit, and no higher number.
    milliseconds = min(max(timeout // timedelta(milliseconds=1), 1), MOST_MILLISECONDS)
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SET TRANSACTION READ ONLY; SET LOCAL lock_timeout = '1s';"
            " SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off;"
            " SET LOCAL enable_mergejoin = off; SET LOCAL jit = off;"
            f" SET LOCAL statement_timeout = {milliseconds}"
        )
