"""Windows: the next few ids of a list, found by reading a bounded number of rows.

A list whose conditions no index serves may need several windows for a page.
"""

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from pulljobs.ids import LARGEST_ID

SCANNED: Final = 10_000


class IdSpan(NamedTuple):
    """Request for the next ids of a list: its start, its direction and its limits.

    The ids begin beyond the id `beyond`. At most `wanted` are returned, and `scanned` rows read.
    """

    beyond: int
    upwards: bool
    wanted: int
    scanned: int = SCANNED

    @property
    def lookup(self) -> dict[str, int]:
        return {"id__gt" if self.upwards else "id__lt": self.beyond}

    @property
    def order(self) -> str:
        return "id" if self.upwards else "-id"

    def leads_to(self, id: int) -> bool:
        return id > self.beyond if self.upwards else id < self.beyond

    def narrow(self, scanned: int) -> "IdSpan":
        return self._replace(scanned=scanned)


class IdRun(NamedTuple):
    """Ids that meet the conditions among the rows of one index, and the last id that was read."""

    ids: list[int]
    reached: int | None
    """Last id that was read, or None at the end of the index."""


class IdWindow(NamedTuple):
    ids: list[int]
    """Ids in order, at most as many as wanted."""
    beyond: int | None
    """Id beyond which there may be more, or None at the end."""


def clamp_id(number: int) -> int:
    """Return the nearest number from 0 to LARGEST_ID, which the database can compare with ids."""
    return max(0, min(number, LARGEST_ID))


def downwards(below: int | None, wanted: int, scanned: int = SCANNED) -> IdSpan:
    """Return a span of falling ids below `below`, or from the newest on for None."""
    return IdSpan(LARGEST_ID if below is None else clamp_id(below), False, wanted, scanned)


def upwards(after: int, wanted: int, scanned: int = SCANNED) -> IdSpan:
    return IdSpan(after, True, wanted, scanned)


def merged(runs: Sequence[IdRun], span: IdSpan) -> IdWindow:
    """Merge the ids from several indexes in order, as far as all of the indexes were read."""
    ends = [run.reached for run in runs if run.reached is not None]
    nearest = (min if span.upwards else max)(ends, default=None)
    ids = sorted(set(chain.from_iterable(run.ids for run in runs)), reverse=not span.upwards)
    if nearest is not None:
        ids = [id for id in ids if (id <= nearest if span.upwards else id >= nearest)]
    if len(ids) > span.wanted:
        return IdWindow(ids[: span.wanted], ids[span.wanted - 1])
    return IdWindow(ids, nearest)
