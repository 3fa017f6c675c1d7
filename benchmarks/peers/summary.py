"""Rounds as cells: the median, and the least and the most beside it."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks.peers.measures import Figures

Content = dict[str, Any]
"""What `Record` keeps."""

LESS: Final = 0.99
MICRO: Final = 1e6
MILLI: Final = 1e3
MARK: Final = "\\*"


class Spread(NamedTuple):
    least: float
    median: float
    most: float


def rounds(content: Content, peer: str, measure: str) -> list[Figures]:
    found: list[Figures] = content["peers"][peer]["figures"].get(measure, [])
    return found


def spread(content: Content, peer: str, measure: str, figure: str) -> Spread | None:
    """None where it was not measured, or there is no such thing."""
    values = [one[figure] for one in rounds(content, peer, measure) if one[figure]]
    return Spread(min(values), median(values), max(values)) if values else None


def rate(content: Content, peer: str, measure: str) -> str:
    """Jobs a second."""
    return _cell(content, peer, measure, "rate", 1.0)


def microseconds(content: Content, peer: str, measure: str, figure: str) -> str:
    return _cell(content, peer, measure, figure, MICRO)


def milliseconds(content: Content, peer: str, measure: str, figure: str) -> str:
    """Marked where some were late."""
    return _cell(content, peer, measure, figure, MILLI, late)


def late(found: Sequence[Figures]) -> bool:
    """Whether some jobs had not started when the wait for them ended."""
    return any(one["started"] < LESS for one in found)


def missing(content: Content, peer: str, measure: str) -> str:
    """Why a cell has no figure."""
    return "failed" if measure in content["peers"][peer]["errors"] else "not measured"


def wal(content: Content, peer: str) -> str:
    """Bytes a job, published many and worked by one process."""
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
    marked: Callable[[Sequence[Figures]], bool] = lambda _found: False,
) -> str:
    found = rounds(content, peer, measure)
    values = spread(content, peer, measure, figure)
    if values is None:
        return "no such call" if found else missing(content, peer, measure)
    least, middle, most = (number(value * scale) for value in values)
    mark = MARK if marked(found) else ""
    return f"**{middle}**{mark} ({least} to {most})" if len(found) > 1 else f"**{middle}**{mark}"


def number(value: float) -> str:
    """Three digits that count."""
    if value >= 1000:
        return f"{round(value, 2 - len(str(int(value))) + 1):,.0f}"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
