"""Arguments and results of the functions of `pulljobs.storage`."""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from pulljobs.engine.claiming.rows import (
    Claimed,
    HeldJob,
    NotYet,
    Refusal,
    StoredMessage,
    Taken,
)
from pulljobs.states import State

__all__ = [
    "Claimed",
    "Finished",
    "HeldJob",
    "JobView",
    "NotYet",
    "ReachedLease",
    "Refusal",
    "Stats",
    "StoredMessage",
    "Taken",
]


class ReachedLease(NamedTuple):
    """Lease whose jobs are expired or released without an outcome from their holder.

    `job_ids` are locked. `running_ids` are those that a worker or a push delivery last reported as
    running, or None for other holders.
    """

    lease_id: int
    lease_token: UUID
    job_ids: list[int]
    running_ids: Collection[int] | None
    via: str
    is_whole: bool
    """False if other jobs of the lease are locked by other transactions."""


@dataclass(frozen=True, slots=True)
class Finished:
    """Result of writing outcomes.

    `states` has the new states by job id. `lost` jobs were not held under their lease token.
    `refused` has the errors, by job id, of outcomes whose values could not be written.

    `released` jobs are queued again by a release without a delay. `roomier` consumers may claim
    more jobs, because jobs in flight have ended. `repeated` jobs had been settled the same way
    before, under the same lease token. Outcomes of `locked` jobs are perhaps not written: another
    transaction keeps rows locked, or an error prevented the search for lost jobs.
    """

    states: dict[int, State]
    lost: list[int]
    refused: dict[int, str]
    released: frozenset[int] = frozenset()
    roomier: frozenset[int] = frozenset()
    repeated: frozenset[int] = frozenset()
    locked: frozenset[int] = frozenset()

    def __or__(self, other: "Finished") -> "Finished":
        """Return the results of two batches as a single result."""
        return Finished(
            self.states | other.states,
            self.lost + other.lost,
            self.refused | other.refused,
            self.released | other.released,
            self.roomier | other.roomier,
            self.repeated | other.repeated,
            self.locked | other.locked,
        )


class Stats(NamedTuple):
    """Counts of a consumer's live jobs, none above the requested cap."""

    ready: int
    delayed: int
    in_flight: int
    dead: int
    oldest_ready_seconds: float | None
    blocked: int
    """Jobs that wait for another job of their key."""

    @property
    def waiting(self) -> int:
        return self.ready + self.delayed + self.blocked

    @property
    def live(self) -> int:
        return self.waiting + self.in_flight


class JobView(NamedTuple):
    """Columns of a job, from its live row, or from its last row in the archive if it has none."""

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
    """Time of the first claim of a live job, or of the claim that settled it."""
    settled_at: datetime | None
    started_at: datetime | None
    """Start of the run that settled the job. None until then, or if the holder reports no runs."""
    run_seconds: float | None
    """Seconds that the handler ran."""
    progress: Any = None
    """Last progress that the handler reported, with `done`, `total`, `note` and `reported_at`."""
