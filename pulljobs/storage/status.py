"""Status of one consumer: counts of its jobs, for the HTTP API."""

from datetime import datetime
from typing import Final, NamedTuple

from pulljobs.storage.statements import run

CAP: Final = 10_000


class StatusRow(NamedTuple):
    """Counts of a consumer's jobs from one snapshot, by state at most CAP: a row of status.sql."""

    now: datetime
    ready: int
    delayed: int
    blocked: int
    in_flight: int
    redelivered: int
    dead: int
    delivered: int
    settlements: int
    """Number of the newest settlements among which `delivered` was counted."""
    oldest_ready_seconds: float | None
    waiting: int
    paused_until: datetime | None
    lowest_live: int | None
    newest_settled: int | None

    @property
    def is_capped(self) -> bool:
        """True if any count may be too low, because it reached CAP."""
        counts = (self.ready, self.delayed, self.blocked, self.in_flight, self.dead)
        return max(*counts, self.settlements) >= CAP

    @property
    def is_paused(self) -> bool:
        """True if the consumer or its channel is paused."""
        return self.paused_until is not None and self.paused_until > self.now

    @property
    def settled_up_to(self) -> int | None:
        """Highest job id up to which all jobs are settled, or None if it is not known."""
        if self.is_capped:
            return None
        return self.newest_settled if self.lowest_live is None else self.lowest_live - 1


def read_status(using: str, consumer_id: int) -> StatusRow | None:
    """Return the status of a consumer, or None if there is no such consumer."""
    params = {"consumer_ids": [consumer_id], "cap": CAP}
    rows: list[StatusRow] = run(using, "status", params, kind=StatusRow)
    return rows[0] if rows else None
