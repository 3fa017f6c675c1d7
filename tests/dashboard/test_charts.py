"""Charts draw their figures to scale, and escape their text."""

from dataclasses import replace
from datetime import UTC, datetime
from xml.etree import ElementTree as ET

import pytest

from pulljobs.admin.dashboard import history, ranges
from pulljobs.admin.dashboard.charts import (
    Frame,
    Stack,
    draw_bars,
    draw_lines,
    draw_sparkline,
    duration_scale,
    linear_scale,
)
from pulljobs.admin.dashboard.drawn import ChartBook
from pulljobs.admin.dashboard.formats import compact


def framed(columns: int, highest: float, tips: list[str] | None = None) -> Frame:
    names = [f"{number}" for number in range(columns)]
    return Frame("label", names, tips or names, linear_scale(highest), compact)


def heights(drawn: str, name: str) -> list[float]:
    """Return the heights of the bars with this CSS class in the SVG of a chart."""
    return [
        float(rect.attrib["height"])
        for rect in ET.fromstring(drawn).iter("rect")
        if rect.attrib["class"] == name
    ]


def tooltips(drawn: str) -> list[str | None]:
    return [title.text for title in ET.fromstring(drawn).iter("title")]


@pytest.mark.parametrize(
    ("highest", "ticks"),
    [
        (0, (0, 1)),
        (1, (0, 1)),
        (3, (0, 1, 2, 3)),
        (4, (0, 1, 2, 3, 4)),
        (7, (0, 2, 4, 6, 8)),
        (11, (0, 5, 10, 15)),
        (1999, (0, 500, 1000, 1500, 2000)),
        (2001, (0, 1000, 2000, 3000)),
    ],
)
def test_axes_of_counts_begin_at_zero_and_have_round_steps(
    highest: float, ticks: tuple[float, ...]
) -> None:
    assert linear_scale(highest).ticks == ticks


@pytest.mark.parametrize(
    "seconds", [(), (0.0,), (0.02,), (1.0, 1.0), (0.003, 90.0), (1e9,), (1e-7,)]
)
def test_all_durations_are_between_the_ends_of_their_axis(seconds: tuple[float, ...]) -> None:
    scale = duration_scale(seconds)
    assert len(scale.ticks) >= 2
    assert all(0 <= scale.share(duration) <= 1 for duration in seconds)
    assert (scale.share(scale.ticks[0]), scale.share(scale.ticks[-1])) == (0, 1)


def test_every_decade_of_durations_has_the_same_height() -> None:
    scale = duration_scale([0.001, 0.1])
    assert scale.share(0.01) == pytest.approx(0.5)


def test_bars_are_as_high_as_their_counts_and_are_stacked() -> None:
    stacks = [Stack([("dead", 100), ("delivered", 300)]), Stack([("dead", 0), ("delivered", 200)])]
    drawn = draw_bars(framed(2, 400), stacks)
    assert heights(drawn, "dead") == [25]
    assert heights(drawn, "delivered") == [75, 50]
    [first, _second] = [
        rect for rect in ET.fromstring(drawn).iter("rect") if rect.attrib["class"] == "delivered"
    ]
    assert float(first.attrib["y"]) == 0


def test_one_dead_job_in_a_million_is_visible() -> None:
    drawn = draw_bars(framed(1, 1_000_000), [Stack([("dead", 1), ("delivered", 999_999)])])
    assert heights(drawn, "dead")[0] > 1


def test_lines_break_where_no_value_is_known_and_a_lone_value_is_a_dot() -> None:
    drawn = draw_lines(framed(6, 4), [("p50", [1.0, 2.0, None, 4.0, None, None])])
    paths = [path.attrib["d"] for path in ET.fromstring(drawn).iter("path")]
    assert paths == ["M8.33 75.00 L25.00 50.00", "M58.33 0.00 h0.01"]


def test_every_column_has_a_tooltip_with_its_figures() -> None:
    drawn = draw_bars(framed(2, 1, ["08:00: 3 dead", "08:01: none"]), [Stack([]), Stack([])])
    assert tooltips(drawn) == [
        "08:00: 3 dead",
        "08:01: none",
    ]


def test_tooltips_are_escaped() -> None:
    drawn = draw_bars(framed(1, 1, ['<script>"']), [Stack([])])
    assert "<script" not in drawn
    assert tooltips(drawn) == ['<script>"']


def test_a_chart_has_no_inline_style() -> None:
    """Classes set the colours of charts, because a strict CSP forbids inline styles."""
    drawn = draw_bars(framed(3, 9), [Stack([("dead", 9)])] * 3) + draw_sparkline([1, 0, 5])
    assert "style" not in drawn


def test_a_sparkline_has_a_bar_for_each_step_with_settlements() -> None:
    [path] = ET.fromstring(draw_sparkline([1, 0, 4])).iter("path")
    assert path.attrib["d"].count("M") == 2
    assert "V0h" in path.attrib["d"].rpartition("M")[2], "the highest is as high as the drawing"


def test_steps_are_named_once_for_all_charts_and_escaped_in_tables() -> None:
    """Labels of time steps are made once, because formatting dates takes the longest on a page."""
    named: list[datetime] = []

    def name_step(at: datetime) -> str:
        named.append(at)
        return "<i>"

    week = replace(ranges.choose("week"), label=name_step, name_step=name_step)
    past = history.make_empty(week.slices(datetime(2026, 5, 4, tzinfo=UTC)), week.step)
    past.points[-1].count(1, 2, 3)
    past.points[-1].runs = 1.0, 2.0, 3.0
    book = ChartBook(past, week)
    charts = [book.draw_settled(), book.draw_failures(), book.draw_times("runs", "Run time")]
    assert len(named) == 2 * week.steps
    assert book._count_tips is book._count_tips
    row = '<tr><th scope="row">&lt;i&gt;</th><td>{}</td><td>{}</td><td>{}</td></tr>'
    counts = row.format(1, 2, 3)
    times = row.format("1 s", "2 s", "3 s")
    assert [chart.body for chart in charts] == [counts, counts, times]
