"""Charts as SVG, drawn on the server without a script, so that a strict CSP allows them.

A chart is as wide as its container and has a fixed height. Its shapes are in an inner SVG of 100 by
100 that is stretched. Its texts are in the outer SVG with positions in per cent. Colours and
strokes are classes of the style sheet, for both themes. Except in a sparkline, every column has a
`<title>`, which browsers show as a tooltip, and the figures are in a table next to the chart, too.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element, SubElement, tostring

from django.utils.safestring import SafeString, mark_safe

HEIGHT: Final = 160
AXIS_HEIGHT: Final = 22
LABELS: Final = 5
GAP: Final = 0.14
SMALLEST_BAR: Final = 1.2
"""Smallest height of a bar in per cent, so that one job among a million is visible."""
STEPS: Final = (1.0, 2.0, 5.0, 10.0)
MOST_STEPS: Final = 4
DURATIONS: Final = (
    1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0, 86_400.0, 7 * 86_400.0,
    60 * 86_400.0,
)  # fmt: skip
"""Possible lines of the grid of a logarithmic axis, in seconds."""


@dataclass(frozen=True)
class Scale:
    """Vertical scale of a chart: it maps values to heights, linearly or by logarithm."""

    ticks: tuple[float, ...]
    """Values of the lines of the grid, from the lowest to the highest of the scale."""
    measure: Callable[[float], float]
    """Function that makes values proportional to heights, such as `log`."""

    def share(self, value: float) -> float:
        """Return the height of a value as a share of the chart: 0 at the bottom, 1 at the top."""
        low, high = self.measure(self.ticks[0]), self.measure(self.ticks[-1])
        at = (self.measure(max(value, self.ticks[0])) - low) / (high - low)
        return min(1.0, at)


def linear_scale(highest: float) -> Scale:
    """Return a linear scale from 0 to a round number that is not below `highest`."""
    step = _round_step(max(highest, 1.0) / MOST_STEPS)
    count = max(1, math.ceil(max(highest, 1.0) / step - 1e-9))
    return Scale(tuple(step * number for number in range(count + 1)), float)


def duration_scale(seconds: Sequence[float]) -> Scale:
    """Return a logarithmic scale around these durations, cut off at 0.1 ms and at 60 days."""
    known = [value for value in seconds if value > 0] or [0.01, 1.0]
    low = max((tick for tick in DURATIONS if tick <= min(known)), default=DURATIONS[0])
    high = min((tick for tick in DURATIONS if tick >= max(known)), default=DURATIONS[-1])
    if low >= high:
        low = DURATIONS[max(0, DURATIONS.index(high) - 1)]
        high = DURATIONS[DURATIONS.index(low) + 1]
    return Scale(tuple(tick for tick in DURATIONS if low <= tick <= high), math.log)


def _round_step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least))
    step = next(size * step for step in STEPS if size * step >= least - 1e-9)
    return step if step >= 1 else 1.0


@dataclass(frozen=True)
class Frame:
    """Axes, grid and tooltips of a chart over time."""

    label: str
    """Description of the chart for screen readers."""
    times: Sequence[str]
    """Label of the start of each column."""
    tips: Sequence[str]
    """Tooltip of each column."""
    scale: Scale
    unit: Callable[[float], str]
    """Format of the values at the lines of the grid."""

    def left(self, column: float) -> float:
        """Return the position of a column's left edge in per cent of the chart's width."""
        return 100.0 * column / len(self.times)

    def top(self, value: float) -> float:
        """Return the position of a value in per cent of the chart's height, from the top."""
        return 100.0 * (1.0 - self.scale.share(value))


@dataclass(frozen=True)
class Stack:
    """Column of a bar chart: counts from the bottom to the top, each with its CSS class."""

    parts: Sequence[tuple[str, float]]
    faint: bool = False
    """True if the counts of the column are not complete, such as those of the current hour."""

    @property
    def total(self) -> float:
        """Sum of the counts, which is the height of the column."""
        return sum(count for _name, count in self.parts)


def draw_bars(frame: Frame, stacks: Sequence[Stack]) -> SafeString:
    """Return a bar chart with a stack of counts for each column, on the axes of `frame`."""
    outer, shapes = _begin(frame)
    for number, stack in enumerate(stacks):
        column = _add(shapes, "g", class_="faint" if stack.faint else "column")
        x, width = frame.left(number + GAP / 2), frame.left(1 - GAP)
        _pile(column, stack, x, width, [100 - frame.top(count) for _name, count in stack.parts])
    return _finish(outer, frame)


def draw_lines(frame: Frame, lines: Sequence[tuple[str, Sequence[float | None]]]) -> SafeString:
    """Return a line chart. Each line is a CSS class and a value per column, None for a gap."""
    outer, shapes = _begin(frame)
    for name, values in lines:
        for path in _paths(frame, values):
            _add(shapes, "path", class_=f"line {name}", d=path)
    return _finish(outer, frame)


def draw_sparkline(totals: Sequence[float]) -> SafeString:
    """Return a bar chart as small as a word, without axes, for the cell of a table."""
    outer = _drawing(22, "")
    outer.attrib.pop("aria-label")
    outer.attrib |= {"class": "pj-spark", "role": "presentation", "aria-hidden": "true"}
    shapes, scale = _stretched(outer, 22), linear_scale(max(totals, default=0))
    step = 100 / max(1, len(totals))
    width = _text(step * (1 - GAP))
    bars = []  # A path of all bars, because a page has many of them.
    for number, total in enumerate(totals):
        if total:
            top = 100 - max(6.0, 100 * total / scale.ticks[-1])
            bars.append(f"M{_text(step * (number + GAP / 2))} 100V{_text(top)}h{width}V100z")
    _add(shapes, "path", class_="delivered", d="".join(bars))
    return _rendered(outer)


def _begin(frame: Frame) -> tuple[Element, Element]:
    """Return a new drawing with grid and labels, and the element inside it for bars or lines."""
    outer = _drawing(HEIGHT + AXIS_HEIGHT, frame.label)
    for tick in frame.scale.ticks:
        y = HEIGHT * frame.top(tick) / 100
        _add(outer, "line", class_="grid", x1=0, x2="100%", y1=y, y2=y)
        _add(outer, "text", frame.unit(tick), class_="y", x=-8, y=y, dy="0.32em")
    _add_times(outer, frame.times)
    return outer, _stretched(outer, HEIGHT)


def _add_times(outer: Element, times: Sequence[str]) -> None:
    """Label a few columns on the time axis. Narrow screens show only every second label."""
    step = max(1, round(len(times) / LABELS))
    for number, column in enumerate(range(len(times) - 1, -1, -step)):
        x = f"{100 * (column + 0.5) / len(times):.2f}%"
        second = " second" if number % 2 else ""
        end = " end" if column + step / 4 >= len(times) else ""
        text_class = f"x{second}{end}"
        _add(outer, "text", times[column], class_=text_class, x=x, y=HEIGHT + AXIS_HEIGHT - 5)


def _finish(outer: Element, frame: Frame) -> SafeString:
    """Add the tooltips, in transparent columns over the shapes, and return the drawing as text."""
    over = _stretched(outer, HEIGHT)
    for number, tip in enumerate(frame.tips):
        hit = _add(
            over, "rect", class_="hit", x=frame.left(number), y=0, width=frame.left(1), height=100
        )
        _add(hit, "title", tip)
    return _rendered(outer)


def _pile(column: Element, stack: Stack, x: float, width: float, heights: Sequence[float]) -> None:
    bottom = 100.0
    for (name, count), height in zip(stack.parts, heights, strict=True):
        if count:
            height = max(SMALLEST_BAR, height)
            bottom -= height
            _block(column, name, x, width, bottom, height)


def _block(parent: Element, name: str, x: float, width: float, y: float, height: float) -> None:
    _add(parent, "rect", class_=name, x=x, y=y, width=width, height=height)


def _paths(frame: Frame, values: Sequence[float | None]) -> Iterator[str]:
    """Yield an SVG path for each stretch of a line between gaps. A single value becomes a dot."""
    for run in _runs(values):
        points = [f"{frame.left(at + 0.5):.2f} {frame.top(value):.2f}" for at, value in run]
        yield f"M{' L'.join(points)}" if len(points) > 1 else f"M{points[0]} h0.01"


def _runs(values: Sequence[float | None]) -> Iterator[list[tuple[int, float]]]:
    run: list[tuple[int, float]] = []
    for at, value in enumerate(values):
        if value is not None:
            run.append((at, value))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _drawing(height: int, label: str) -> Element:
    return Element(
        "svg",
        {"class": "pj-drawing", "height": str(height), "width": "100%", "role": "img"},
        **{"aria-label": label},
    )


def _stretched(parent: Element, height: int) -> Element:
    """Add an SVG element of 100 by 100 units that is stretched over the whole width."""
    return _add(
        parent,
        "svg",
        width="100%",
        height=height,
        viewBox="0 0 100 100",
        preserveAspectRatio="none",
    )


def _add(parent: Element, tag: str, text: str = "", /, **attributes: float | str) -> Element:
    """Add a child element and return it.

    In names of attributes, underscores become hyphens, except at the end, where they go (`class_`).
    """
    named = {name.rstrip("_").replace("_", "-"): _text(value) for name, value in attributes.items()}
    child = SubElement(parent, tag, named)
    child.text = text or None
    return child


def _rendered(drawing: Element) -> SafeString:
    """Return the drawing as text that is safe in a template: ElementTree escapes what it holds."""
    return mark_safe(tostring(drawing, encoding="unicode"))


def _text(value: float | str) -> str:
    """Return the text of an attribute: numbers are rounded to two decimals."""
    return value if isinstance(value, str) else f"{value:.2f}".rstrip("0").rstrip(".")
