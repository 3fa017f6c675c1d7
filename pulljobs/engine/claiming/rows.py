"""Parameters and results of claims."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs.engine.encodings import decode_timestamp, tuple_maker
from pulljobs.engine.low_water_marks import Position, Snapshot
from pulljobs.engine.sql import Row


class HeldJob(NamedTuple):
    """Job in flight, as its claim found it. `deliveries` counts this claim."""

    id: int
    message_id: int
    priority: int
    retry_count: int
    deliveries: int
    suspect: bool = False
    """The job ran in a process that died."""


_held_job: Final = tuple_maker(HeldJob)


def held_jobs(row: Row, priorities: Sequence[int]) -> list[HeldJob]:
    """Return the jobs of a claim from the arrays in its row."""
    columns = (
        row.job_ids,
        row.message_ids,
        priorities,
        row.retry_counts,
        row.deliveries,
        row.suspects,
    )
    return list(map(_held_job, zip(*columns, strict=True)))


class StoredMessage(NamedTuple):
    """Row of messages.sql."""

    id: int
    payload: bytes
    content_type: str
    given_headers: dict[str, str] | None
    published: bytes
    """Time of publication in binary form: most readers do not need the datetime, which is slow."""
    client_message_id: str | None
    key: str | None = None

    @property
    def published_at(self) -> datetime:
        """Time of publication."""
        return decode_timestamp(self.published)

    @property
    def headers(self) -> dict[str, str]:
        """Headers, empty if none were given."""
        return self.given_headers or {}

    @property
    def size(self) -> int:
        """Bytes of payload and headers."""
        headers = sum(len(text.encode()) for item in self.headers.items() for text in item)
        return len(self.payload) + headers


class Taken(NamedTuple):
    """Token and deadline of a new lease."""

    lease_token: UUID
    leased_until: datetime


class Refusal(StrEnum):
    """Reason why a claim got nothing, or less than was available."""

    DELETED = "deleted"
    """The consumer is deleted."""
    PAUSED = "paused"
    """The consumer or its channel is paused."""
    MAX_IN_FLIGHT = "max_in_flight"
    """The consumer or its group has as many jobs in flight as it allows."""
    RATE_LIMITED = "rate_limited"
    """The rate of the consumer or its group allows the next job at `next_due`."""
    THROTTLED = "throttled"
    """A handler or an endpoint asked for a pause, which ends at `next_due`."""
    MAX_BYTES = "max_bytes"
    """The next job is larger than the rest of the claim's size limit."""
    BUSY_KEY = "busy_key"
    """A job of the same key is in flight or comes first."""
    KEY_LIMITED = "key_limited"
    """Every key with waiting jobs has all its slots taken or no token."""
    UNGUARDED = "unguarded"
    """The consumer has guards that the claim did not respect. `pulling` never returns this."""
    REPEATED = "repeated"
    """A claim under the same request id exists. `pulling` never returns this."""


LIMITS: Final = (
    Refusal.MAX_IN_FLIGHT,
    Refusal.RATE_LIMITED,
    Refusal.THROTTLED,
    Refusal.KEY_LIMITED,
)
"""Reasons that end by themselves, or by the end of a job."""


class NotYet(NamedTuple):
    """Refusal of a claim by id that may be tried again after a time."""

    reason: Refusal
    """RATE_LIMITED or THROTTLED, or KEY_LIMITED of a claim for telemetry."""
    next_due: timedelta
    """Time until the next token, or until the end of the throttle."""


class Terms(NamedTuple):
    """Terms of a claim: parameters of the claim statements."""

    via: str
    max_lease: timedelta
    node_id: UUID | None = None
    lease_duration: timedelta | None = None
    """None: the consumer's lease duration."""
    request_id: str | None = None
    guarded: bool = False
    """The caller has checked the limits, and locked the consumer and its group."""
    few: int | None = None
    """Return messages inline when at most this many jobs were claimed."""
    before_id: int | None = None
    """Exclusive consumers only: claim no job with this id or a higher one."""


class RingView(NamedTuple):
    """First turns that a claim by key saw, and what low-water marks need to know of it."""

    started_at: datetime
    snapshot: Snapshot
    xid: int | None
    first_turns: dict[int, datetime | None]
    """First turn of each rank, or None if no key has one."""


class Claimed(NamedTuple):
    """Result of a claim, and what `LowWaterMarks.learn` needs to know about it."""

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
    """The claim looked at a part of the queue only, and this part is out of the way now."""
    sure: bool = True
    """The claim looked for jobs left behind below the positions that it `reached`."""
    by_turn: bool = False
    """The keys of all jobs that the claim met have turns, so it need not meet them again."""
    ring: RingView | None = None
    """Ring of keys that the claim saw, of a consumer whose keys take turns."""
    messages: Sequence[StoredMessage] = ()
    """Messages of all, some or none of the jobs."""
    job_cost: float = 1.0
    """Average cost of the jobs, of a consumer with a rate."""

    def without_jobs(self, refusal: Refusal | None) -> "Claimed":
        """Return the result of a claim that was rolled back: marks learn nothing from it."""
        return self._replace(taken=None, jobs=[], reached={}, ring=None, refusal=refusal)
