"""How one consumer stands."""

from datetime import datetime
from typing import Final, NamedTuple

from pulljobs.storage.statements import run

CAP: Final = 10_000


class Standing(NamedTuple):
    """Counts, none above CAP; all from one snapshot."""

    now: datetime
    ready: int
    delayed: int
    blocked: int
    in_flight: int
    redelivered: int
    dead: int
    delivered: int
    settlements: int
    """Among how many of the newest settlements those delivered were counted."""
    oldest_ready_seconds: float | None
    waiting: int
    paused_until: datetime | None
    lowest_live: int | None
    newest_settled: int | None

    @property
    def is_capped(self) -> bool:
        """Whether there is, or may be, more of something."""
        counts = (self.ready, self.delayed, self.blocked, self.in_flight, self.dead)
        return max(*counts, self.settlements) >= CAP

    @property
    def is_paused(self) -> bool:
        return self.paused_until is not None and self.paused_until > self.now

    @property
    def settled_up_to(self) -> int | None:
        """The highest id that no job is below or at which is still live; None: it is not known."""
        if self.is_capped:
            return None
        return self.newest_settled if self.lowest_live is None else self.lowest_live - 1


def standing(using: str, consumer_id: int) -> Standing | None:
    """None: there is no such consumer any more."""
    for row in run(using, "info", {"consumer_id": consumer_id, "cap": CAP}, kind=Standing):
        return row  # type: ignore[no-any-return]  # of that kind
    return None
