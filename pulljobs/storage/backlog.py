"""What consumers have to do, for pages of all of them: never more is read than up to a cap."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from django.db import connections

from pulljobs.storage.statements import run

MOST: Final = 10_000
LEAST: Final = 1_000
ROWS: Final = 60_000
"""What a page may have to read of one sort of jobs."""


class Backlog(NamedTuple):
    """Counts, none above `cap`, of one snapshot."""

    consumer_id: int
    ready: int
    delayed: int
    parked: int
    in_flight: int
    dead: int
    oldest_ready_at: datetime | None
    cap: int

    @property
    def queued(self) -> int:
        return self.ready + self.delayed + self.parked


def backlogs(using: str, consumer_ids: Sequence[int]) -> list[Backlog]:
    """The more consumers, the lower the cap, so that all of them take about as long as one."""
    cap = max(LEAST, min(MOST, ROWS // max(1, len(consumer_ids))))
    params = {"consumer_ids": list(consumer_ids), "cap": cap}
    return [Backlog(*row, cap) for row in run(using, "backlog", params)]


def estimated(using: str, consumer_id: int) -> int:
    """How many jobs a consumer has that are not dead, as the planner guesses: nothing is read."""
    with connections[using].cursor() as cursor:
        cursor.execute(
            "EXPLAIN (FORMAT JSON) SELECT FROM pulljobs_job"
            " WHERE consumer_id = %s AND available_at <= 'infinity'",
            [consumer_id],
        )
        [(plan,)] = cursor.fetchall()
    return _rows(plan)


def _rows(plan: Any) -> int:
    return int(plan[0]["Plan"]["Plan Rows"])
