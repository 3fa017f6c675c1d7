"""Ranges of the charts: how far back each looks, in what steps, and where its figures come from."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from django.utils.translation import gettext as _text
from django.utils.translation import gettext_lazy as _

from pulljobs import hooks
from pulljobs.admin.dashboard import figures, history
from pulljobs.admin.dashboard.history import History
from pulljobs.storage import recent
from pulljobs.storage.recent import Slice

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)


class HistorySource(Protocol):
    """Reader of the figures of a range."""

    def read_history(
        self, chosen: "Range", now: datetime, consumer_id: int | None, shown: Collection[int]
    ) -> History:
        """Return the history of a consumer, or of all. `shown` names consumers of the table."""

    def describe(self, history: History, chosen: "Range") -> Iterator[str]:
        """Yield sentences that say what the figures cover, and which of them are estimates."""


class ArchiveSource:
    """Settlements of the archive, of which a bounded number is read."""

    def read_history(
        self, chosen: "Range", now: datetime, consumer_id: int | None, shown: Collection[int]
    ) -> History:
        return history.read_archive(chosen.slices(now), chosen.step, consumer_id)

    def describe(self, history: History, chosen: "Range") -> Iterator[str]:
        seconds = chosen.step.seconds // recent.SPANS
        if not history.is_estimate:
            yield _text("From the archive: every settlement of the hour is counted.")
        else:
            yield _text(
                "From the archive: at most %(cap)s rows of every %(seconds)s seconds are read. "
                "Where there are more, counts are estimates, marked ≈."
            ) % {"cap": recent.CAP, "seconds": seconds}
        yield _text(
            "Percentiles are of the first %(timed)s settlements of all consumers in every "
            "%(seconds)s seconds."
        ) % {"timed": recent.TIMED, "seconds": seconds}


@dataclass(frozen=True)
class Range:
    name: str
    title: Any
    steps: int
    step: timedelta
    step_title: Any
    source: HistorySource
    label: Callable[[datetime], str]
    """Format of a step on the axis."""
    name_step: Callable[[datetime], str] = figures.minute
    """Format of a step in tooltips and tables."""

    def slices(self, now: datetime) -> list[Slice]:
        """Return whole steps of UTC, the last of which ends now."""
        start = now.astimezone(UTC).replace(second=0, microsecond=0)
        if self.step >= HOUR:
            start = start.replace(minute=0)
        if self.step >= DAY:
            start = start.replace(hour=0)
        starts = [start - back * self.step for back in range(self.steps - 1, -1, -1)]
        return [Slice(start, min(start + self.step, now)) for start in starts]


DEFAULT: Final = Range("hour", _("1 hour"), 60, MINUTE, _("minute"), ArchiveSource(), figures.clock)


def by_name() -> dict[str, Range]:
    """Return the ranges by name: the hour, and those of `hooks.ranges`."""
    added: list[Range] = [chosen for name in hooks.ranges for chosen in hooks.load(name)]
    return {chosen.name: chosen for chosen in (DEFAULT, *added)}


def choose(name: str | None) -> Range:
    """Return the range of that name, or the default."""
    return by_name().get(name or "", DEFAULT)
