"""What the verbs take and return."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pulljobs.engine import encodings
from pulljobs.engine.claiming.rows import Claimed, HeldJob, Refusal, Taken
from pulljobs.states import State

__all__ = [
    "Claimed",
    "Finished",
    "HeldJob",
    "JobView",
    "ReachedLease",
    "Refusal",
    "Stats",
    "StoredMessage",
    "Taken",
]


class StoredMessage(NamedTuple):
    id: int
    payload: bytes
    content_type: str
    given_headers: dict[str, str] | None
    published: bytes
    """When, in binary form: to make a datetime takes longer than to read all the rest."""
    client_message_id: str | None
    key: str | None = None

    @property
    def published_at(self) -> datetime:
        return encodings.decode_timestamp(self.published)

    @property
    def headers(self) -> dict[str, str]:
        return self.given_headers or {}

    @property
    def size(self) -> int:
        """Bytes of payload and headers."""
        headers = sum(len(text.encode()) for item in self.headers.items() for text in item)
        return len(self.payload) + headers


class ReachedLease(NamedTuple):
    """`running` None: no node's."""

    id: int
    lease_token: UUID
    job_ids: list[int]
    running: Collection[int] | None
    via: str


@dataclass(frozen=True, slots=True)
class Finished:
    """States by job id; `lost` were not held under their token; `refused` could not be written.

    `released` went back unharmed; `roomier` are consumers of which more may be claimed now than
    before; `repeated` are those that had been settled so before, under the same token.
    """

    states: dict[int, State]
    lost: list[int]
    refused: dict[int, str]
    released: frozenset[int] = frozenset()
    roomier: frozenset[int] = frozenset()
    repeated: frozenset[int] = frozenset()


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
    def waiting(self) -> int:
        return self.ready + self.delayed + self.parked

    @property
    def live(self) -> int:
        return self.waiting + self.in_flight


class JobView(NamedTuple):
    """A job, live or archived, as a look-up finds it."""

    id: int
    message_id: int
    consumer_id: int
    state: State
    reason: str | None
    retry_count: int
    deliveries: int
    error: str | None
    result: Any
    available_at: datetime | None
    claimed_at: datetime | None
    settled_at: datetime | None
