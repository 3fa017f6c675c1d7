"""What the verbs take and return."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID

from pulljobs.floors import Position, Snapshot
from pulljobs.states import State


class NewMessage(NamedTuple):
    """A message to publish, checked already."""

    payload: bytes
    content_type: str
    headers: dict[str, str]
    key: str | None = None
    priority: int = 0
    client_message_id: str | None = None
    delay: timedelta | None = None
    available_at: datetime | None = None


class FullKey(NamedTuple):
    """A key that takes no more jobs."""

    consumer: str
    message_id: int
    """Of the newest job in the way."""


class Published(NamedTuple):
    """`message_id` None: nothing was written, as the client message id is taken or the key full."""

    message_id: int | None
    job_ids: list[int]
    consumer_ids: list[int]
    replaced: tuple[int, ...] = ()
    """Those of the jobs that were there before, with another message."""
    full: FullKey | None = None


class StoredMessage(NamedTuple):
    payload: bytes
    content_type: str
    headers: dict[str, str]
    published_at: datetime
    client_message_id: str | None
    key: str | None = None

    @property
    def size(self) -> int:
        """Bytes of payload and headers."""
        headers = sum(len(text.encode()) for item in self.headers.items() for text in item)
        return len(self.payload) + headers


class HeldJob(NamedTuple):
    """A job as its claim found it; `deliveries` counts that claim."""

    id: int
    message_id: int
    priority: int
    retry_count: int
    deliveries: int
    suspect: bool = False
    """It ran in a process that died."""


class Taken(NamedTuple):
    token: UUID
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


class Claimed(NamedTuple):
    """What a claim took, and what it saw (for `Floors.learn`)."""

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

    def without_jobs(self, refusal: Refusal | None) -> "Claimed":
        """The same where the jobs were not taken after all: nothing is to be learned from it."""
        return self._replace(taken=None, jobs=[], reached={}, refusal=refusal)


class ReachedLease(NamedTuple):
    """`running` None: no node's."""

    id: int
    token: UUID
    job_ids: list[int]
    running: Collection[int] | None
    door: str


@dataclass(frozen=True, slots=True)
class Finished:
    """States by job id; `lost` were not held under their token; `refused` could not be written.

    `roomier` are consumers of which more may be claimed now than before.
    """

    states: dict[int, State]
    lost: list[int]
    refused: dict[int, str]
    roomier: frozenset[int] = frozenset()


class Stats(NamedTuple):
    """Counts, none above the cap that was asked for."""

    ready: int
    delayed: int
    in_flight: int
    dead: int
    oldest_ready_seconds: float | None
    parked: int
    """Behind their keys."""

    @property
    def jobs(self) -> int:
        return self.ready + self.delayed + self.in_flight + self.dead + self.parked


class JobView(NamedTuple):
    """A job, live or archived, as a look-up finds it."""

    id: int
    state: State
    reason: str | None
    retry_count: int
    deliveries: int
    error: str | None
    result: Any
    available_at: datetime | None
    claimed_at: datetime | None
    settled_at: datetime | None
