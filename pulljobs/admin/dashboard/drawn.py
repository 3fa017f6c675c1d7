"""The charts of the page, each with its figures as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.charts import bars, lines
from pulljobs.admin.dashboard.charts.bars import Stack
from pulljobs.admin.dashboard.charts.frame import Frame
from pulljobs.admin.dashboard.charts.scales import durations, linear
from pulljobs.admin.dashboard.history import History, Point
from pulljobs.admin.dashboard.ranges import Range
from pulljobs.storage.recent import Quantiles

QUANTILES: Final = ("p50", "p95", "p99")


@dataclass(frozen=True)
class Drawn:
    svg: SafeString
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Only of times at which something was settled, the newest first."""


def settled(history: History, chosen: Range) -> Drawn:
    stacks = [
        Stack([("dead", point.dead), ("delivered", point.delivered)], faint=not point.is_whole)
        for point in history.points
    ]
    around = Frame(
        label=_("Settled jobs by %s, delivered and dead") % chosen.step_title,
        times=_times(history, chosen),
        tips=[_counts_tip(point, chosen) for point in history.points],
        scale=linear(max((stack.total for stack in stacks), default=0)),
        unit=figures.compact,
    )
    return _with_counts(bars.draw(around, stacks), history, chosen)


def failures(history: History, chosen: Range) -> Drawn:
    stacks = [
        Stack([("dead", point.dead), ("retry", point.retries)], faint=not point.is_whole)
        for point in history.points
    ]
    around = Frame(
        label=_("Dead jobs and retries by %s") % chosen.step_title,
        times=_times(history, chosen),
        tips=[_counts_tip(point, chosen) for point in history.points],
        scale=linear(max((stack.total for stack in stacks), default=0)),
        unit=figures.compact,
    )
    return _with_counts(bars.draw(around, stacks), history, chosen)


def times(history: History, chosen: Range, measure: str, title: str) -> Drawn:
    """`measure`: waits or runs."""
    found: list[Quantiles | None] = [getattr(point, measure) for point in history.points]
    known = [one for quantiles in found if quantiles for one in quantiles]
    around = Frame(
        label=_("%(title)s by %(step)s: p50, p95 and p99")
        % {"title": title, "step": chosen.step_title},
        times=_times(history, chosen),
        tips=[
            _times_tip(chosen.name_step(point.start), one)
            for point, one in zip(history.points, found, strict=True)
        ],
        scale=durations(known),
        unit=figures.duration,
    )
    drawn = [
        (name, [None if one is None else one[place] for one in found])
        for place, name in enumerate(QUANTILES)
    ]
    return Drawn(
        lines.draw(around, drawn),
        [_("From"), *QUANTILES],
        [
            [chosen.name_step(point.start), *map(figures.duration, one)]
            for point, one in reversed([*zip(history.points, found, strict=True)])
            if one
        ],
    )


def _with_counts(svg: SafeString, history: History, chosen: Range) -> Drawn:
    head = [_("From"), _("Delivered"), _("Dead"), _("Retries")]
    points = [point for point in reversed(history.points) if point.settled]
    return Drawn(svg, head, [[chosen.name_step(one.start), *_counts(one)] for one in points])


def _times(history: History, chosen: Range) -> list[str]:
    return [chosen.label(point.start) for point in history.points]


def _counts(point: Point) -> list[str]:
    about = "≈ " if point.is_estimate else ""
    counts: list[Any] = [point.delivered, point.dead, point.retries]
    return [f"{about}{figures.number(round(count))}" for count in counts]


def _counts_tip(point: Point, chosen: Range) -> str:
    delivered, dead, retried = _counts(point)
    return _("%(when)s: %(delivered)s delivered, %(dead)s dead, %(retries)s retries") % {
        "when": chosen.name_step(point.start),
        "delivered": delivered,
        "dead": dead,
        "retries": retried,
    }


def _times_tip(step: str, found: Quantiles | None) -> str:
    if found is None:
        return _("%s: nothing to tell") % step
    told = zip(QUANTILES, map(figures.duration, found), strict=True)
    return f"{step}: " + ", ".join(f"{name} {time}" for name, time in told)
