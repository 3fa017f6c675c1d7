"""Time ranges of the charts: how long each is, its time steps, and the source of its figures."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol

from django.utils.translation import gettext as _text
from django.utils.translation import gettext_lazy as _

from pulljobs import hooks
from pulljobs.admin.dashboard import formats, history
from pulljobs.admin.dashboard.history import DAY, HOUR, MINUTE, History
from pulljobs.engine.histograms import ERROR_PERCENT
from pulljobs.storage.recent import Slice


class HistorySource(Protocol):
    """Interface of a source of settlements for the charts, such as a table of another app."""

    def read_history(
        self, chosen: "Range", now: datetime, consumer_id: int | None, shown: Collection[int]
    ) -> History:
        """Return the settlements of a range, of one consumer or (None) of all.

        The history also has the sums of each consumer in `shown`, which the table lists.
        """

    def describe(self, history: History, chosen: "Range") -> Iterator[str]:
        """Yield sentences for the page: which settlements a history has, and what is estimated."""


class CountSource:
    """Source that reads the stored counts of settlements, and the settlements not counted yet."""

    def read_history(
        self, chosen: "Range", now: datetime, consumer_id: int | None, shown: Collection[int]
    ) -> History:
        return history.read_counts(chosen.slices(now), chosen.step, consumer_id, shown)

    def describe(self, history: History, chosen: "Range") -> Iterator[str]:
        if history.known_until is not None:
            yield _text(
                "Settlements after %s are not counted yet: start a worker, or run manage.py "
                "pulljobs maintain."
            ) % formats.timestamp(history.known_until)
        elif history.known_from is not None:
            yield _text("Every settlement from %s on is counted.") % formats.timestamp(
                history.known_from
            )
        else:
            yield _text("Every settlement is counted.")
        yield _text("Wait and run times are estimates, at most %s %% off.") % ERROR_PERCENT


@dataclass(frozen=True)
class Range:
    name: str
    title: Any
    steps: int
    step: timedelta
    step_title: Any
    source: HistorySource
    label: Callable[[datetime], str]
    """Format of the start of a time step, for the axis of a chart."""
    name_step: Callable[[datetime], str] = formats.minute
    """Format of the start of a time step, for tooltips and tables."""

    def slices(self, now: datetime) -> list[Slice]:
        """Return the time steps of the range, oldest first. The last ends at `now`.

        They begin at full minutes, hours or days of UTC.
        """
        start = now.astimezone(UTC).replace(second=0, microsecond=0)
        if self.step >= HOUR:
            start = start.replace(minute=0)
        if self.step >= DAY:
            start = start.replace(hour=0)
        starts = [start - back * self.step for back in range(self.steps - 1, -1, -1)]
        return [Slice(start, min(start + self.step, now)) for start in starts]


COUNTS: Final = CountSource()
DEFAULT: Final = Range("hour", _("1 hour"), 60, MINUTE, _("minute"), COUNTS, formats.clock)
RANGES: Final = (
    DEFAULT,
    Range("day", _("24 hours"), 24, HOUR, _("hour"), COUNTS, formats.clock),
    Range("week", _("7 days"), 7 * 24, HOUR, _("hour"), COUNTS, formats.day),
    Range(
        "month",
        _("30 days"),
        30,
        DAY,
        _("day (UTC)"),
        COUNTS,
        formats.utc_day,
        formats.utc_date,
    ),
)


def by_name() -> dict[str, Range]:
    """Return all ranges by name. A range of `hooks.ranges` replaces that of the same name."""
    added: list[Range] = [chosen for name in hooks.ranges for chosen in hooks.load(name)]
    return {chosen.name: chosen for chosen in (*RANGES, *added)}


def choose(name: str | None) -> Range:
    """Return the range of this name, or that of one hour if there is none."""
    known = by_name()
    return known.get(name or "", known[DEFAULT.name])
