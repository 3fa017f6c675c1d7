"""Status of one consumer."""

from datetime import datetime
from typing import Final, NamedTuple

from pulljobs.storage.statements import run

CAP: Final = 10_000


class StatusRow(NamedTuple):
    """Row of status.sql: counts, none above CAP, all from one snapshot."""

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
        """Return True if any count may be too low."""
        counts = (self.ready, self.delayed, self.blocked, self.in_flight, self.dead)
        return max(*counts, self.settlements) >= CAP

    @property
    def is_paused(self) -> bool:
        """Return True if the consumer or its channel is paused."""
        return self.paused_until is not None and self.paused_until > self.now

    @property
    def settled_up_to(self) -> int | None:
        """Highest id up to which no job is live, or None if it is not known."""
        if self.is_capped:
            return None
        return self.newest_settled if self.lowest_live is None else self.lowest_live - 1


def read_status(using: str, consumer_id: int) -> StatusRow | None:
    """Return the status of a consumer, or None if there is no such consumer."""
    params = {"consumer_ids": [consumer_id], "cap": CAP}
    rows: list[StatusRow] = run(using, "status", params, kind=StatusRow)
    return rows[0] if rows else None
