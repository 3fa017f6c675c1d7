"""Check of the invariants of the tables, for `manage.py pulljobs verify`.

It reads pages of 1,000 rows in short read-only transactions. It waits for a lock for a second at
most, holds no snapshot longer than a page takes, and uses indexes whatever the statistics say, so
that it can run while workers are busy.
"""

import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple

from django.db import connections, transaction
from django.utils import timezone

from pulljobs import hooks, ids
from pulljobs.engine.sql import Row
from pulljobs.storage import partitions
from pulljobs.storage.statements import run

PAGE: Final = 1_000
LAST: Final = 2**63 - 1
MOST_MILLISECONDS: Final = 2**31 - 1
OVERTAKEN: Final = timedelta(minutes=1)
SETTLED: Final = timedelta(hours=1)
"""Age of a consumer from which each later message must have a job for it."""
CLOCKS: Final = timedelta(hours=1)
"""Largest difference between the clocks of an application and the database."""

INVARIANTS: Final = {
    "job_is_legal": "A job is QUEUED, or INFLIGHT and leased, or DEAD for a reason.",
    "in_flight_is_leased": "A lease of its consumer with its token names a job in flight.",
    "leased_once": "No two leases hold one job.",
    "job_has_its_message": "The message of a live job is there.",
    "job_has_its_consumer": "The row of a live job's consumer is there.",
    "delivered_is_gone": "A delivered job is not live.",
    "dead_is_remembered": "The death of a DEAD job is in the archive.",
    "one_in_flight_a_key": "At most one job of a key of an exclusive consumer is in flight.",
    "blocked_behind_a_job": "A job that is blocked behind its key waits for another job.",
    "claimed_in_turn": "No job waits while later ones of its priority are claimed.",
    "slots_of_a_key": "Jobs of a key are in flight in no more slots than `max_in_flight_per_key`.",
    "waiting_key_has_a_turn": "A key with a waiting job and a free slot has a turn.",
    "slots_at_every_instant": "By the archive, no claim of a key went over its slots.",
    "claims_keep_the_rate": "By the archive, no window had more claims than a rate allows.",
    "lease_ends": "A lease ends after its claim and not after its hard end.",
    "ended_lease_is_reaped": "The reaper takes back the jobs of a lease soon after its end.",
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
        "slots_of_a_key",
        "waiting_key_has_a_turn",
        "ended_lease_is_reaped",
    }
)
"""Invariants that may be violated for a moment: they are broken if a second check agrees."""
KINDS: Final = {"jobs": False, "leases": False, "archive": True, "messages": True}
"""Names of the checked tables, with True for those whose newest rows are read first."""


OnPage = Callable[[int], object]
"""Function that is called with the number of rows of each page."""


class CheckLimits(NamedTuple):
    """Limits of a check: rows of each table, time for a page, delay of the reaper, retention."""

    rows: int | None
    """Rows of each table to check at most, None for all."""
    page_timeout: timedelta
    overdue: timedelta
    """Time that a lease may wait for the reaper after its end."""
    retention: timedelta | None


@dataclass
class CheckResult:
    """Result of a check: the number of checked rows by table, and rows that break an invariant.

    `broken` has the ids of rows by name of the invariant.
    """

    looked_at: dict[str, int] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)
    """Names of tables that may have more rows than were checked."""
    broken: dict[str, set[int]] = field(default_factory=dict)

    def only(self, names: Collection[str]) -> dict[str, set[int]]:
        """Return those of the named invariants that are broken, with the ids that break them."""
        return {name: ids for name, ids in self.broken.items() if name in names}


def check_once(using: str, limits: CheckLimits, on_page: OnPage = lambda rows: None) -> CheckResult:
    """Check every table once.

    Raise OperationalError if a page takes over `page_timeout`, or waits for a lock for a second.
    """
    result = CheckResult()
    for table, newest_first in KINDS.items():
        after = LAST if newest_first else 0
        looked_at = 0
        for page in _pages(using, table, after, limits):
            looked_at += page.looked_at
            on_page(page.looked_at)
            for name, id in zip(page.invariants, page.ids, strict=True):
                result.broken.setdefault(name, set()).add(id)
            if page.reached is not None and limits.rows is not None and looked_at >= limits.rows:
                result.unseen.append(table)
                break
        result.looked_at[table] = looked_at
    return result


def check(
    using: str,
    limits: CheckLimits,
    patience: timedelta,
    on_page: OnPage = lambda rows: None,
) -> CheckResult:
    """Check every table, a second time if broken invariants may be broken only for a moment.

    The second check comes after `patience`. These invariants (PASSING) count as broken only if the
    same rows break them in both checks.
    """
    result = check_once(using, limits, on_page)
    if suspected := result.only(PASSING):
        time.sleep(patience.total_seconds())
        again = check_once(using, limits).broken
        for name, ids_before in suspected.items():
            still = ids_before & again.get(name, set())
            result.broken = {**result.broken, name: still}
    result.broken = {name: ids for name, ids in result.broken.items() if ids}
    return result


def _pages(using: str, table: str, after: int, limits: CheckLimits) -> Iterator[Row]:
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
    """Return the lowest id from which the archive is complete.

    The partitions of earlier days are dropped, or are older than the retention.
    """
    days = partitions.existing(using, "pulljobs_archived_job")
    # Days without a gap up to the last day: earlier days may have been restored.
    whole = [
        day
        for back, day in enumerate(reversed(days))
        if day.day == days[-1].day - timedelta(days=back)
    ]
    since = whole[-1].bounds[0] if whole else 0
    if retention is None:
        return since
    return max(since, ids.first_of(timezone.now() - retention + CLOCKS))


def _page(using: str, table: str, params: dict[str, Any], limits: CheckLimits) -> Row:
    with transaction.atomic(using=using):
        read_only(using, limits.page_timeout)
        name = f"verify_{table}"
        [row] = run(using, hooks.statements.get(name, name), params)
    return row


def read_only(using: str, timeout: timedelta) -> None:
    """Make the open transaction read-only, with short time limits and plans that use indexes.

    A statement may take `timeout` and wait a second for a lock.
    """
    # PostgreSQL takes 0 for no limit, and no higher number.
    milliseconds = min(max(timeout // timedelta(milliseconds=1), 1), MOST_MILLISECONDS)
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SET TRANSACTION READ ONLY; SET LOCAL lock_timeout = '1s';"
            " SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off;"
            " SET LOCAL enable_mergejoin = off; SET LOCAL jit = off;"
            f" SET LOCAL statement_timeout = {milliseconds}"
        )
