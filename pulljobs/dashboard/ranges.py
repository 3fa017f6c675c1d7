"""How far back the page looks, and in what steps."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.utils.translation import gettext_lazy as _

from pulljobs.dashboard import figures
from pulljobs.models.rollups import Period
from pulljobs.storage.recent import Slice

MINUTE: Final = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
DAY: Final = timedelta(days=1)


@dataclass(frozen=True)
class Range:
    name: str
    title: Any
    steps: int
    step: timedelta
    step_title: Any
    period: Period | None
    """Of the rollups that tell it; None: the archive does."""
    label: Callable[[datetime], str]
    """Of a step, on the axis."""
    name_step: Callable[[datetime], str] = figures.minute
    """In tips and tables."""

    def slices(self, now: datetime) -> list[Slice]:
        """Whole steps of UTC, the last one until now."""
        start = now.astimezone(UTC).replace(second=0, microsecond=0)
        if self.step >= HOUR:
            start = start.replace(minute=0)
        if self.step >= DAY:
            start = start.replace(hour=0)
        starts = [start - back * self.step for back in range(self.steps - 1, -1, -1)]
        return [Slice(one, min(one + self.step, now)) for one in starts]


RANGES: Final = {
    one.name: one
    for one in (
        Range("hour", _("1 hour"), 60, MINUTE, _("minute"), None, figures.clock),
        Range("day", _("24 hours"), 24, HOUR, _("hour"), Period.HOUR, figures.clock),
        Range("week", _("7 days"), 7 * 24, HOUR, _("hour"), Period.HOUR, figures.day),
        Range(
            "month",
            _("30 days"),
            30,
            DAY,
            _("day (UTC)"),
            Period.DAY,
            label=figures.utc_day,
            name_step=figures.utc_date,
        ),
    )
}
DEFAULT: Final = RANGES["hour"]


def chosen(name: str | None) -> Range:
    """What is no range is the default."""
    return RANGES.get(name or "", DEFAULT)
