"""Counts of the live jobs of consumers. A cap bounds their cost: no count of a state exceeds it."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from django.db import connections

from pulljobs.engine.encodings import integer_array
from pulljobs.states import State
from pulljobs.storage.statements import run

CAPS: Final = (10_000, 5_000, 2_000, 1_000, 500, 200)
ROWS: Final = 10_000
"""Rough number of rows that one page reads for all counts of one state together."""

QUEUED: Final = ("ready", "delayed", "blocked")
COUNTS: Final = (*QUEUED, "in_flight", "dead")


class JobCounts(NamedTuple):
    """Counts of a consumer's live jobs, with first and last times: a row of count_jobs.sql.

    The times are those of claims, or for QUEUED jobs those from which they can be claimed.
    """

    now: datetime
    consumer_id: int
    ready: int
    delayed: int
    blocked: int
    in_flight: int
    dead: int
    blocked_is_least: bool
    redelivered: int
    lowest_live: int | None
    oldest_ready_at: datetime | None
    oldest_queued_at: datetime | None
    newest_queued_at: datetime | None
    oldest_claimed_at: datetime | None
    newest_claimed_at: datetime | None

    @property
    def queued(self) -> int:
        """Number of QUEUED jobs."""
        return self.ready + self.delayed + self.blocked


class Backlog(NamedTuple):
    """Counts of the live jobs of one consumer, none above `cap`, or `dead_cap` for DEAD jobs.

    They are from one snapshot, except for a count of DEAD jobs with a `dead_cap`.
    """

    consumer_id: int
    ready: int
    delayed: int
    blocked: int
    in_flight: int
    dead: int
    oldest_ready_at: datetime | None
    blocked_is_least: bool
    """True if there may be more blocked jobs: next to many DEAD jobs, not all are read."""
    cap: int
    dead_cap: int | None = None
    """Cap of the count of DEAD jobs, or None if it is `cap`."""

    @property
    def queued(self) -> int:
        """Number of QUEUED jobs."""
        return self.ready + self.delayed + self.blocked

    @property
    def is_capped(self) -> bool:
        """True if any count may be too low."""
        return any(map(self.is_least, COUNTS))

    def is_least(self, count: str) -> bool:
        """Return True if the count of this name, one of COUNTS, may be too low."""
        cap = self.dead_cap if count == "dead" and self.dead_cap else self.cap
        is_cut_off: bool = getattr(self, count) >= cap
        return is_cut_off or (count == "blocked" and self.blocked_is_least)


def count_jobs(using: str, consumer_ids: Sequence[int], cap: int) -> list[JobCounts]:
    """Return the counts of each consumer's live jobs from one snapshot, by state at most `cap`."""
    params = {"consumer_ids": list(consumer_ids), "cap": cap}
    return run(using, "count_jobs", params, kind=JobCounts)


def backlogs(using: str, consumer_ids: Sequence[int]) -> list[Backlog]:
    """Return the counts of each consumer's live jobs.

    The more consumers, the lower the cap, down to 200, so that the time hardly grows with them.
    """
    cap = choose_cap(len(consumer_ids))
    return [
        Backlog(
            row.consumer_id,
            row.ready,
            row.delayed,
            row.blocked,
            row.in_flight,
            row.dead,
            row.oldest_ready_at,
            row.blocked_is_least,
            cap,
        )
        for row in count_jobs(using, consumer_ids, cap)
    ]


def choose_cap(consumers: int) -> int:
    """Return the cap, 200 at least, with which these counts read about `ROWS` rows in all."""
    return next((cap for cap in CAPS if cap * consumers <= ROWS), CAPS[-1])


def ready(using: str, consumer_ids: Sequence[int]) -> set[int]:
    """Return the ids of those consumers that have a ready job: QUEUED, due and not blocked."""
    return {row.consumer_id for row in count_jobs(using, consumer_ids, 1) if row.ready}


def estimate(using: str, counted: Backlog) -> int | None:
    """Return an estimate of the number of QUEUED jobs, or None if their counts are exact.

    It is the estimate of PostgreSQL's planner, but at least the counted number.
    """
    if not any(map(counted.is_least, QUEUED)):
        return None
    return max(counted.queued, estimate_queued(using, counted.consumer_id))


def estimate_queued(using: str, consumer_id: int) -> int:
    """Return the estimate of PostgreSQL's planner for a consumer's QUEUED jobs. It reads no row."""
    explain = "EXPLAIN (FORMAT JSON) SELECT FROM pulljobs_job WHERE consumer_id = %s AND state = %s"
    with connections[using].cursor() as cursor:
        cursor.execute(explain, [consumer_id, State.QUEUED])
        [[[plan]]] = cursor.fetchall()
    return int(plan["Plan"]["Plan Rows"])


def consumers_with_jobs(using: str, consumer_ids: Sequence[int]) -> set[int]:
    """Return the ids of those consumers that may have jobs to claim, now or later.

    The others have no jobs but DEAD ones and those that are blocked behind their keys.
    """
    params = {"consumer_ids": integer_array(consumer_ids)}
    return {row.consumer_id for row in run(using, "consumers_with_jobs", params)}
