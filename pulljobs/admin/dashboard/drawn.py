"""Charts of the page, each with its figures as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from pulljobs.admin.dashboard import figures
from pulljobs.admin.dashboard.charts import (
    Frame,
    Stack,
    draw_bars,
    draw_lines,
    duration_scale,
    linear_scale,
)
from pulljobs.admin.dashboard.history import History, Point
from pulljobs.admin.dashboard.ranges import Range
from pulljobs.engine.histograms import Quantiles

QUANTILES: Final = ("p50", "p95", "p99")


@dataclass(frozen=True)
class DrawnChart:
    """Chart and the table of its figures."""

    svg: SafeString
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Rows of the steps with settlements, newest first."""


def draw_settled(history: History, chosen: Range) -> DrawnChart:
    """Draw delivered and dead jobs."""
    stacks = [
        Stack([("dead", point.dead), ("delivered", point.delivered)], faint=not point.is_whole)
        for point in history.points
    ]
    around = Frame(
        label=_("Settled jobs by %s, delivered and dead") % chosen.step_title,
        times=_times(history, chosen),
        tips=[_counts_tip(point, chosen) for point in history.points],
        scale=linear_scale(max((stack.total for stack in stacks), default=0)),
        unit=figures.compact,
    )
    return _with_counts(draw_bars(around, stacks), history, chosen)


def draw_failures(history: History, chosen: Range) -> DrawnChart:
    """Draw dead jobs and retries."""
    stacks = [
        Stack([("dead", point.dead), ("retry", point.retries)], faint=not point.is_whole)
        for point in history.points
    ]
    around = Frame(
        label=_("Dead jobs and retries by %s") % chosen.step_title,
        times=_times(history, chosen),
        tips=[_counts_tip(point, chosen) for point in history.points],
        scale=linear_scale(max((stack.total for stack in stacks), default=0)),
        unit=figures.compact,
    )
    return _with_counts(draw_bars(around, stacks), history, chosen)


def draw_times(history: History, chosen: Range, measure: str, title: str) -> DrawnChart:
    """Draw percentiles of `measure`, which is "waits" or "runs"."""
    measured: list[Quantiles | None] = [getattr(point, measure) for point in history.points]
    known = [seconds for quantiles in measured if quantiles for seconds in quantiles]
    around = Frame(
        label=_("%(title)s by %(step)s: p50, p95 and p99")
        % {"title": title, "step": chosen.step_title},
        times=_times(history, chosen),
        tips=[
            _times_tip(chosen.name_step(point.start), quantiles)
            for point, quantiles in zip(history.points, measured, strict=True)
        ],
        scale=duration_scale(known),
        unit=figures.duration,
    )
    by_name = [
        (name, [None if quantiles is None else quantiles[number] for quantiles in measured])
        for number, name in enumerate(QUANTILES)
    ]
    return DrawnChart(
        draw_lines(around, by_name),
        [_("From"), *QUANTILES],
        [
            [chosen.name_step(point.start), *map(figures.duration, quantiles)]
            for point, quantiles in reversed([*zip(history.points, measured, strict=True)])
            if quantiles
        ],
    )


def _with_counts(svg: SafeString, history: History, chosen: Range) -> DrawnChart:
    head = [_("From"), _("Delivered"), _("Dead"), _("Retries")]
    points = [point for point in reversed(history.points) if point.settled]
    rows = [[chosen.name_step(point.start), *_counts(point)] for point in points]
    return DrawnChart(svg, head, rows)


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


def _times_tip(step: str, quantiles: Quantiles | None) -> str:
    if quantiles is None:
        return _("%s: no data") % step
    named = zip(QUANTILES, map(figures.duration, quantiles), strict=True)
    return f"{step}: " + ", ".join(f"{name} {time}" for name, time in named)
