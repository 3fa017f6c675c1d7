"""What the verbs take and return."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

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


class Published(NamedTuple):
    """`message_id` None: the client message id is taken; then nothing was written."""

    message_id: int | None
    job_ids: list[int]
    consumer_ids: list[int]


class StoredMessage(NamedTuple):
    payload: bytes
    content_type: str
    headers: dict[str, str]
    published_at: datetime
    client_message_id: str | None


class HeldJob(NamedTuple):
    """A job as its claim found it; `deliveries` counts that claim."""

    id: int
    message_id: int
    priority: int
    key: str | None
    retry_count: int
    deliveries: int


class Taken(NamedTuple):
    token: UUID
    leased_until: datetime


class ReachedLease(NamedTuple):
    id: int
    token: UUID
    job_ids: list[int]


@dataclass(frozen=True, slots=True)
class Finished:
    """States by job id; `lost` were not held under their token; `refused` could not be written."""

    states: dict[int, State]
    lost: list[int]
    refused: dict[int, str]


class Stats(NamedTuple):
    """Counts, none above the cap that was asked for."""

    ready: int
    delayed: int
    in_flight: int
    dead: int
    oldest_ready_seconds: float | None


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
