"""Columns of counts, one upon the other."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from xml.etree.ElementTree import Element

from django.utils.safestring import SafeString

from pulljobs.admin.dashboard.charts import frame, svg
from pulljobs.admin.dashboard.charts.frame import Frame
from pulljobs.admin.dashboard.charts.scales import linear

GAP: Final = 0.14
LEAST: Final = 1.2
"""Of the height: what is there is seen, be it one among a million."""


@dataclass(frozen=True)
class Stack:
    """The counts of a column, from the bottom, each with its class."""

    parts: Sequence[tuple[str, float]]
    faint: bool = False
    """It is not complete."""

    @property
    def total(self) -> float:
        return sum(count for _name, count in self.parts)


def draw(around: Frame, stacks: Sequence[Stack]) -> SafeString:
    outer, shapes = frame.begin(around)
    for number, stack in enumerate(stacks):
        column = svg.add(shapes, "g", class_="faint" if stack.faint else "column")
        x, width = around.left(number + GAP / 2), around.left(1 - GAP)
        _pile(column, stack, x, width, [100 - around.top(count) for _name, count in stack.parts])
    return frame.finish(outer, around)


def sparkline(totals: Sequence[float]) -> SafeString:
    """A word-sized one, without axes; what it shows is told beside it."""
    outer = svg.drawing(22, "")
    outer.attrib.pop("aria-label")
    outer.attrib |= {"class": "pj-spark", "role": "presentation", "aria-hidden": "true"}
    shapes, scale = svg.stretched(outer, 22), linear(max(totals, default=0))
    width = 100 / max(1, len(totals))
    for number, total in enumerate(totals):
        if total:
            height = max(6.0, 100 * total / scale.ticks[-1])
            x = width * (number + GAP / 2)
            _block(shapes, "delivered", x, width * (1 - GAP), 100 - height, height)
    return svg.written(outer)


def _pile(column: Element, stack: Stack, x: float, width: float, heights: Sequence[float]) -> None:
    bottom = 100.0
    for (name, count), height in zip(stack.parts, heights, strict=True):
        if count:
            height = max(LEAST, height)
            bottom -= height
            _block(column, name, x, width, bottom, height)


def _block(parent: Element, name: str, x: float, width: float, y: float, height: float) -> None:
    svg.add(parent, "rect", class_=name, x=x, y=y, width=width, height=height)
