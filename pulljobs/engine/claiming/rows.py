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
    """True if an earlier run may have crashed its process or blocked the event loop."""


_held_job: Final = tuple_maker(HeldJob)


def held_jobs(row: Row, priorities: Sequence[int]) -> list[HeldJob]:
    """Return the jobs of a claim from the row of its statement, which has an array per column.

    `priorities` are those of the jobs, in the same order.
    """
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
    """Message of a claimed job, as messages.sql or the claim statement itself returns it."""

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
        """Time of the publish, aware."""
        return decode_timestamp(self.published)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of the message, empty if it has none."""
        return self.given_headers or {}

    @property
    def size(self) -> int:
        """Bytes of payload and headers."""
        headers = sum(len(text.encode()) for item in self.headers.items() for text in item)
        return len(self.payload) + headers


class Taken(NamedTuple):
    """New lease: its lease_token, and the time at which it ends unless it is renewed."""

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
    """The rate of the consumer or its group allows the next job after `next_due`."""
    THROTTLED = "throttled"
    """A handler or an endpoint asked for a pause, which ends after `next_due`."""
    MAX_BYTES = "max_bytes"
    """The next job is larger than the rest of the claim's size limit."""
    BUSY_KEY = "busy_key"
    """Another job holds the key or comes first, or the key has no free slot."""
    KEY_LIMITED = "key_limited"
    """Each key with waiting jobs has no free slot or no token of its rate, or is throttled."""
    UNGUARDED = "unguarded"
    """The claim did not obey the consumer's guards. It is repeated: `pulling` returns none."""
    REPEATED = "repeated"
    """A claim under the same request id exists. `pulling` returns that one, and never this."""


LIMITS: Final = (
    Refusal.MAX_IN_FLIGHT,
    Refusal.RATE_LIMITED,
    Refusal.THROTTLED,
    Refusal.KEY_LIMITED,
)
"""Reasons that are limits or throttles, which telemetry reports as `ClaimLimited`."""


class NotYet(NamedTuple):
    """Limit or throttle because of which a claim got no job, or no more, and the time to wait."""

    reason: Refusal
    """RATE_LIMITED, THROTTLED or KEY_LIMITED."""
    next_due: timedelta
    """Time until the next token, or until the end of the throttle."""


class Terms(NamedTuple):
    """Parameters that all claim statements have in common, mainly those of the new lease."""

    via: str
    """Way in which the jobs are claimed, a value of `pulljobs.models.Lease.Via`."""
    max_lease: timedelta
    """Longest time from the claim for which renewals can keep the lease."""
    node_id: UUID | None = None
    lease_duration: timedelta | None = None
    """Duration of the lease, or None for that of the consumer."""
    request_id: str | None = None
    guarded: bool = False
    """True if the caller has checked the limits, and locked the consumer and its group."""
    few: int | None = None
    """Largest number of claimed jobs with which the claim returns the messages, None for never."""
    before_id: int | None = None
    """Id from which on no job is claimed, or None. Only claims by exclusive keys respect it."""


class RingView(NamedTuple):
    """First turn at each `FlowKey.turn_rank`, as a claim saw the index of turns (ring)."""

    started_at: datetime
    snapshot: Snapshot
    xid: int | None
    """Transaction id of the claim, or None if it wrote nothing."""
    first_turns: dict[int, datetime | None]
    """Time of the first turn of each rank, or None if no key of the rank has one."""


class Claimed(NamedTuple):
    """Result of a claim, with what `LowWaterMarks.learn` needs to know about it."""

    started_at: datetime
    snapshot: Snapshot
    xid: int | None
    """Transaction id of the claim, or None if it wrote nothing."""
    taken: Taken | None
    jobs: list[HeldJob]
    reached: dict[int, Position | None]
    """Position up to which the claim left no job, by priority, or None if it did not move."""
    passed: bool
    """True if the claim is known to have skipped jobs that other transactions had locked."""
    next_due: timedelta | None
    refusal: Refusal | None
    more: bool = False
    """True if a further claim may get jobs now, as after a search of only some of the queue."""
    sure: bool = True
    """True if the claim looked for skipped jobs below the positions that it `reached`."""
    by_turn: bool = False
    """True if the keys of all jobs that the claim met have turns now, by which they are claimed."""
    ring: RingView | None = None
    """First turns that the claim saw, of a consumer whose keys take turns, else None."""
    messages: Sequence[StoredMessage] = ()
    """Messages of all, some or none of the jobs."""
    job_cost: float = 1.0
    """Average cost of the jobs, of a consumer with a rate."""

    def without_jobs(self, refusal: Refusal | None) -> "Claimed":
        """Return this result without lease and jobs, for a claim that was rolled back.

        It does not move the low-water marks.
        """
        return self._replace(taken=None, jobs=[], reached={}, ring=None, refusal=refusal)
