"""Counts of jobs by state, for the status over HTTP. No count exceeds CAP."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from pulljobs.engine.sql import Row
from pulljobs.models import Consumer
from pulljobs.states import State
from pulljobs.storage.backlog import JobCounts, count_jobs
from pulljobs.storage.statements import run

CAP: Final = 10_000


class Count(NamedTuple):
    """Number of jobs of one consumer in one state, with the times of the oldest and newest.

    They are those of claims or settlements, or for QUEUED jobs those of becoming claimable.
    """

    consumer_id: int
    state: State
    jobs: int
    capped: bool
    """True if there are more jobs, or may be."""
    oldest: datetime | None
    newest: datetime | None


def consumers(using: str) -> list[Consumer]:
    """Return the consumers that are not deleted, with their channels, ordered by name."""
    rows = Consumer.objects.using(using).filter(deleted_at=None)
    return list(rows.select_related("channel").order_by("channel__name", "name"))


def live(using: str, consumer_ids: Sequence[int]) -> list[Count]:
    """Return the counts of QUEUED, INFLIGHT and DEAD jobs of these consumers, without zeros."""
    counted = count_jobs(using, consumer_ids, CAP + 1)
    dying = [row.consumer_id for row in counted if row.dead]
    rows = run(using, "dead_times", {"consumer_ids": dying}) if dying else []
    died = {row.consumer_id: row for row in rows}
    return [count for row in counted for count in _by_state(row, died.get(row.consumer_id))]


def _by_state(row: JobCounts, died: Row | None) -> Iterator[Count]:
    if row.queued:
        count = _capped(row, State.QUEUED, row.queued, row.oldest_queued_at, row.newest_queued_at)
        yield count._replace(capped=count.capped or row.blocked_is_least)
    if row.in_flight:
        times = row.oldest_claimed_at, row.newest_claimed_at
        yield _capped(row, State.INFLIGHT, row.in_flight, *times)
    if died is not None:
        yield _capped(row, State.DEAD, row.dead, died.oldest, died.newest)


def _capped(
    row: JobCounts, state: State, jobs: int, oldest: datetime | None, newest: datetime | None
) -> Count:
    return Count(row.consumer_id, state, min(jobs, CAP), jobs > CAP, oldest, newest)


def delivered(using: str) -> list[Count]:
    """Return the counts of DELIVERED jobs of all consumers among the newest 10,001 settlements.

    If there are that many, every count is `capped`.
    """
    rows = run(using, "delivered", {"settlements": CAP + 1})
    capped = any(row.consumer_id is None and row.jobs > CAP for row in rows)
    return [
        Count(row.consumer_id, State.DELIVERED, min(row.jobs, CAP), capped, row.oldest, row.newest)
        for row in rows
        if row.consumer_id is not None
    ]
