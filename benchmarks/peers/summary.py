"""Cells of the tables: the median of the rounds, with minimum and maximum."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.peers.measures import Figures

Content = dict[str, Any]
"""Content of a `Record`."""

LESS: Final = 0.99
MICRO: Final = 1e6
MILLI: Final = 1e3
MARK: Final = "\\*"


class Spread(NamedTuple):
    """Minimum, median and maximum of the rounds."""

    least: float
    median: float
    most: float


def rounds(content: Content, peer: str, measure: str) -> list[Figures]:
    """Return the figures of all rounds of a measure, without those that failed."""
    figures: list[Figures] = content["peers"][peer]["figures"].get(measure, [])
    return figures


def spread(content: Content, peer: str, measure: str, figure: str) -> Spread | None:
    """Return the spread of a figure, or None if no round has it."""
    values = [round[figure] for round in rounds(content, peer, measure) if round[figure]]
    return Spread(min(values), median(values), max(values)) if values else None


def rate(content: Content, peer: str, measure: str) -> str:
    """Return the cell of a rate in jobs a second."""
    return _cell(content, peer, measure, "rate", 1.0)


def microseconds(content: Content, peer: str, measure: str, figure: str) -> str:
    """Return the cell of a time in microseconds."""
    return _cell(content, peer, measure, figure, MICRO)


def milliseconds(content: Content, peer: str, measure: str, figure: str) -> str:
    """Return the cell of a time in milliseconds, with a star if too many jobs started late."""
    return _cell(content, peer, measure, figure, MILLI, is_late)


def is_late(figures: Sequence[Figures]) -> bool:
    """Return True if in some round fewer than 99 % of the jobs started in time."""
    return any(round["started"] < LESS for round in figures)


def missing(content: Content, peer: str, measure: str) -> str:
    """Return the text of a cell without a figure: whether the measure failed or was not made."""
    return "failed" if measure in content["peers"][peer]["errors"] else "not measured"


def wal(content: Content, peer: str) -> str:
    """Return the cell of the WAL bytes a job: the sum of publishing in batches and working."""
    published = spread(content, peer, "fill", "wal")
    worked = spread(content, peer, "noop x 1", "wal")
    if published is None or worked is None:
        return "not measured"
    return f"{published.median + worked.median:,.0f}"


def _cell(
    content: Content,
    peer: str,
    measure: str,
    figure: str,
    scale: float,
    marked: Callable[[Sequence[Figures]], bool] = lambda _figures: False,
) -> str:
    figures = rounds(content, peer, measure)
    values = spread(content, peer, measure, figure)
    if values is None:
        return "no such call" if figures else missing(content, peer, measure)
    least, middle, most = (number(value * scale) for value in values)
    mark = MARK if marked(figures) else ""
    return f"**{middle}**{mark} ({least} to {most})" if len(figures) > 1 else f"**{middle}**{mark}"


def number(value: float) -> str:
    """Return a number as text, rounded to three significant digits."""
    if value >= 1000:
        return f"{round(value, 2 - len(str(int(value))) + 1):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
