"""Rows in the order of their ids, a window at a time: it reads so many at most, found or not."""

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from pulljobs.ids import LARGEST_ID

SCANNED: Final = 10_000


class Span(NamedTuple):
    """Where a window begins, which way it goes, and how far."""

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

    def narrow(self, scanned: int) -> "Span":
        return self._replace(scanned=scanned)


class Run(NamedTuple):
    """What one index gave: the ids that fit, and the last that it looked at."""

    ids: list[int]
    reached: int | None
    """None: it came to its end."""


class Window(NamedTuple):
    ids: list[int]
    """In order, as many as were wanted at the most."""
    beyond: int | None
    """From where there may be more; None: there is nothing more."""


def downwards(below: int | None, wanted: int, scanned: int = SCANNED) -> Span:
    """The newest first."""
    return Span(LARGEST_ID if below is None else below, False, wanted, scanned)


def upwards(after: int, wanted: int, scanned: int = SCANNED) -> Span:
    return Span(after, True, wanted, scanned)


def merged(runs: Sequence[Run], span: Span) -> Window:
    """Only as far as every run has looked."""
    ends = [run.reached for run in runs if run.reached is not None]
    nearest = (min if span.upwards else max)(ends, default=None)
    ids = sorted(set(chain.from_iterable(run.ids for run in runs)), reverse=not span.upwards)
    if nearest is not None:
        ids = [id for id in ids if (id <= nearest if span.upwards else id >= nearest)]
    if len(ids) > span.wanted:
        return Window(ids[: span.wanted], ids[span.wanted - 1])
    return Window(ids, nearest)
