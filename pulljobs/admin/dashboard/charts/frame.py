"""What charts over time have in common: the grid, the axes, and what a column tells."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from django.utils.safestring import SafeString

from pulljobs.admin.dashboard.charts import svg
from pulljobs.admin.dashboard.charts.scales import Scale

HEIGHT: Final = 160
BELOW: Final = 22
"""For the words of the x axis."""
LABELS: Final = 5


@dataclass(frozen=True)
class Frame:
    label: str
    """What a screen reader says of the drawing."""
    times: Sequence[str]
    """Of each column, where it begins."""
    tips: Sequence[str]
    """Of each column."""
    scale: Scale
    unit: Callable[[float], str]

    def left(self, column: float) -> float:
        """In per cent of the width."""
        return 100.0 * column / len(self.times)

    def top(self, value: float) -> float:
        """In per cent of the height, from above."""
        return 100.0 * (1.0 - self.scale.share(value))


def begin(frame: Frame) -> tuple[Element, Element]:
    """The drawing, and in it where the shapes belong."""
    outer = svg.drawing(HEIGHT + BELOW, frame.label)
    _grid(outer, frame)
    _times(outer, frame.times)
    return outer, svg.stretched(outer, HEIGHT)


def finish(outer: Element, frame: Frame) -> SafeString:
    """On top of the shapes a column for each time, which shows what it tells."""
    over = svg.stretched(outer, HEIGHT)
    for number, tip in enumerate(frame.tips):
        hit = svg.add(
            over, "rect", class_="hit", x=frame.left(number), y=0, width=frame.left(1), height=100
        )
        svg.add(hit, "title", tip)
    return svg.written(outer)


def _grid(outer: Element, frame: Frame) -> None:
    for tick in frame.scale.ticks:
        y = HEIGHT * frame.top(tick) / 100
        svg.add(outer, "line", class_="grid", x1=0, x2="100%", y1=y, y2=y)
        svg.add(outer, "text", frame.unit(tick), class_="y", x=-8, y=y, dy="0.32em")


def _times(outer: Element, times: Sequence[str]) -> None:
    """A few, from the right, where the present is; on narrow screens every second one."""
    step = max(1, round(len(times) / LABELS))
    for place, column in enumerate(range(len(times) - 1, -1, -step)):
        x = f"{100 * (column + 0.5) / len(times):.2f}%"
        second = " second" if place % 2 else ""
        end = " end" if column + step / 4 >= len(times) else ""
        text_class = f"x{second}{end}"
        svg.add(outer, "text", times[column], class_=text_class, x=x, y=HEIGHT + BELOW - 5)
