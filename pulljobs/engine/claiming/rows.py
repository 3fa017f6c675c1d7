"""What claims take and give."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple
from uuid import UUID

from pulljobs.engine.claiming.session import Row
from pulljobs.engine.encodings import tuple_maker
from pulljobs.engine.low_water_marks import Position, Snapshot


class HeldJob(NamedTuple):
    """A job as its claim found it; `deliveries` counts that claim."""

    id: int
    message_id: int
    priority: int
    retry_count: int
    deliveries: int
    suspect: bool = False
    """It ran in a process that died."""


_held_job: Final = tuple_maker(HeldJob)


def held_jobs(columns: Iterable[Iterable[Any]]) -> list[HeldJob]:
    """From the values of each field in turn."""
    return list(map(_held_job, zip(*columns, strict=True)))


class Taken(NamedTuple):
    lease_token: UUID
    leased_until: datetime


class Refusal(StrEnum):
    """Why a claim gave nothing, or less than there was."""

    DELETED = "deleted"
    """The consumer is."""
    PAUSED = "paused"
    """The consumer or its channel is."""
    MAX_IN_FLIGHT = "max_in_flight"
    MAX_BYTES = "max_bytes"
    """The next job is larger than what was left of the claim's size."""
    BUSY_KEY = "busy_key"
    """A job of its key is in flight, or comes before it."""
    UNGUARDED = "unguarded"
    """Claims of this consumer have to be guarded; callers of `pulling` never see it."""
    REPEATED = "repeated"
    """There is a claim under that request id; they don't see this either."""


class Terms(NamedTuple):
    """On what terms jobs are claimed."""

    via: str
    max_lease: timedelta
    node_id: UUID | None = None
    lease_duration: timedelta | None = None
    """None: of the consumer's length."""
    request_id: str | None = None
    guarded: bool = False
    """max_in_flight was seen to."""
    few: int | None = None
    """Of a claim of so many jobs or fewer the messages may come along."""
    before_id: int | None = None
    """Of exclusive consumers: nothing is begun with that has this id or a later one."""


class Claimed(NamedTuple):
    """What a claim took, and what it saw (for `LowWaterMarks.learn`)."""

    started_at: datetime
    snapshot: Snapshot
    xid: int | None
    taken: Taken | None
    jobs: list[HeldJob]
    reached: dict[int, Position | None]
    passed: bool
    next_due: timedelta | None
    refusal: Refusal | None
    more: bool = False
    """It looked at less than there is, and what it saw is out of the way now."""
    sure: bool = True
    """It looked whether something was left behind what it `reached`."""
    messages: Sequence[Row] = ()
    """Rows of messages.sql, of all of the jobs, some or none."""

    def without_jobs(self, refusal: Refusal | None) -> "Claimed":
        """The same where the jobs were not taken after all: nothing is to be learned from it."""
        return self._replace(taken=None, jobs=[], reached={}, refusal=refusal)
