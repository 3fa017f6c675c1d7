"""Charts of the page about the settlements of a range, each with its figures as a table."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from django.utils.html import format_html_join
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from pulljobs.admin.dashboard import formats
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
    """Chart, and its figures as a table for readers who can't see it."""

    svg: SafeString
    head: Sequence[str]
    """Titles of the columns."""
    rows: Sequence[Sequence[str]]
    """Row for each time step with settlements, newest first. It begins with the step's start."""

    @property
    def body(self) -> SafeString:
        """Rows of the table as HTML. A template would take ten times as long to render them."""
        row = '<tr><th scope="row">{}</th>' + "<td>{}</td>" * (len(self.head) - 1) + "</tr>"
        return format_html_join("\n", row, self.rows)


class ChartBook:
    """Maker of the charts of one history, which share the formatted texts of its time steps."""

    def __init__(self, history: History, chosen: Range) -> None:
        self._points, self._step = history.points, chosen.step_title
        self._names = [chosen.name_step(point.start) for point in history.points]
        self._labels = [chosen.label(point.start) for point in history.points]
        self._counts = [_counts(point) for point in history.points]

    def draw_settled(self) -> DrawnChart:
        """Draw bars of the delivered and dead jobs of each time step, such as a minute."""
        label = _("Settled jobs by %s, delivered and dead") % self._step
        return self._draw_counts(label, ("dead", "dead"), ("delivered", "delivered"))

    def draw_failures(self) -> DrawnChart:
        """Draw bars of the dead jobs of each time step, and of the retries of its settled jobs."""
        label = _("Dead jobs and retries by %s") % self._step
        return self._draw_counts(label, ("dead", "dead"), ("retry", "retries"))

    def draw_times(self, measure: str, title: str) -> DrawnChart:
        """Draw lines of p50, p95 and p99 of the wait times or run times of each time step.

        `measure` is the attribute of a `Tally`: "waits" or "runs".
        """
        measured: list[Quantiles | None] = [getattr(point, measure) for point in self._points]
        known = [seconds for quantiles in measured if quantiles for seconds in quantiles]
        label = _("%(title)s by %(step)s: p50, p95 and p99") % {"title": title, "step": self._step}
        texts = [quantiles and [*map(formats.duration, quantiles)] for quantiles in measured]
        tips = [_times_tip(*step) for step in zip(self._names, texts, strict=True)]
        around = Frame(label, self._labels, tips, duration_scale(known), formats.duration)
        by_name = [
            (name, [None if quantiles is None else quantiles[number] for quantiles in measured])
            for number, name in enumerate(QUANTILES)
        ]
        steps = reversed([*zip(self._names, texts, strict=True)])
        rows = [[name, *text] for name, text in steps if text]
        return DrawnChart(draw_lines(around, by_name), [_("From"), *QUANTILES], rows)

    def _draw_counts(self, label: str, *parts: tuple[str, str]) -> DrawnChart:
        """Draw stacked bars. Each of `parts` is a CSS class and an attribute's name of `Point`."""
        stacks = [
            Stack([(kind, getattr(point, name)) for kind, name in parts], faint=not point.is_whole)
            for point in self._points
        ]
        scale = linear_scale(max((stack.total for stack in stacks), default=0))
        around = Frame(label, self._labels, self._count_tips, scale, formats.compact)
        head = [_("From"), _("Delivered"), _("Dead"), _("Retries")]
        return DrawnChart(draw_bars(around, stacks), head, self._count_rows)

    @cached_property
    def _count_tips(self) -> list[str]:
        text = _("%(when)s: %(delivered)s delivered, %(dead)s dead, %(retries)s retries")
        names = ("when", "delivered", "dead", "retries")
        steps = zip(self._names, self._counts, strict=True)
        return [text % dict(zip(names, (name, *counts), strict=True)) for name, counts in steps]

    @cached_property
    def _count_rows(self) -> list[list[str]]:
        steps = reversed([*zip(self._points, self._names, self._counts, strict=True)])
        return [[name, *counts] for point, name, counts in steps if point.settled]


def _counts(point: Point) -> list[str]:
    about = "≈ " if point.is_estimate else ""
    counts: list[Any] = [point.delivered, point.dead, point.retries]
    return [f"{about}{formats.number(round(count))}" for count in counts]


def _times_tip(step: str, quantiles: Sequence[str] | None) -> str:
    if quantiles is None:
        return _("%s: no data") % step
    return f"{step}: " + ", ".join(map(" ".join, zip(QUANTILES, quantiles, strict=True)))
