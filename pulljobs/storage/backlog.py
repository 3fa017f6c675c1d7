"""What consumers have to do, for pages of all of them: never more is read than up to a cap."""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from django.db import connections

from pulljobs.states import State
from pulljobs.storage.statements import run

CAPS: Final = (10_000, 5_000, 2_000, 1_000, 500, 200)
ROWS: Final = 10_000
"""What a page may have to read of one sort of jobs, of all consumers together."""

QUEUED: Final = ("ready", "delayed", "blocked")
COUNTS: Final = (*QUEUED, "in_flight", "dead")


class Backlog(NamedTuple):
    """Counts, none above `cap`, of one snapshot."""

    consumer_id: int
    ready: int
    delayed: int
    blocked: int
    in_flight: int
    dead: int
    oldest_ready_at: datetime | None
    blocked_is_least: bool
    """Of many jobs with keys, beside many dead ones, not all were looked at."""
    cap: int

    @property
    def queued(self) -> int:
        return self.ready + self.delayed + self.blocked

    @property
    def is_capped(self) -> bool:
        """Whether there is, or may be, more of something."""
        return any(map(self.is_least, COUNTS))

    def is_least(self, count: str) -> bool:
        """Whether there is, or may be, more of that."""
        cut_off: bool = getattr(self, count) >= self.cap
        return cut_off or (count == "blocked" and self.blocked_is_least)


def backlogs(using: str, consumer_ids: Sequence[int]) -> list[Backlog]:
    """The more consumers, the lower the cap, so that all of them take about as long as one."""
    cap = next((cap for cap in CAPS if cap * len(consumer_ids) <= ROWS), CAPS[-1])
    params = {"consumer_ids": list(consumer_ids), "cap": cap}
    return [Backlog(**row._asdict(), cap=cap) for row in run(using, "backlog", params)]


def ready(using: str, consumer_ids: Sequence[int]) -> set[int]:
    """Those of them that have something to do now, however much waits for its time."""
    params = {"consumer_ids": list(consumer_ids), "cap": 1}
    return {row.consumer_id for row in run(using, "backlog", params) if row.ready}


def estimate(using: str, found: Backlog) -> int | None:
    """Of what is queued; only where a count was cut off, and never less than what was counted."""
    if not any(map(found.is_least, QUEUED)):
        return None
    return max(found.queued, estimated(using, found.consumer_id))


def estimated(using: str, consumer_id: int) -> int:
    """How many jobs of a consumer are QUEUED, as the planner guesses: nothing is read."""
    explain = "EXPLAIN (FORMAT JSON) SELECT FROM pulljobs_job WHERE consumer_id = %s AND state = %s"
    with connections[using].cursor() as cursor:
        cursor.execute(explain, [consumer_id, State.QUEUED])
        [[[plan]]] = cursor.fetchall()
    return int(plan["Plan"]["Plan Rows"])
