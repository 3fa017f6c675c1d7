"""Figures in order: quantiles, a table, a line of JSON."""

import json
import sys
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any, TextIO

from benchmarks.database import machine

Table = list[dict[str, Any]]


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """The 50th and the 99th, in milliseconds."""
    if len(seconds) < 2:
        return (seconds[0] * 1000, seconds[0] * 1000) if seconds else (0.0, 0.0)
    return median(seconds) * 1000, quantiles(seconds, n=100, method="inclusive")[98] * 1000


def tenths(seconds: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """The first and the last."""
    part = max(1, len(seconds) // 10)
    return seconds[:part], seconds[-part:]


def spread(seconds: Sequence[float]) -> str:
    return "" if not seconds else "{:.1f} / {:.1f}".format(*percentiles(seconds))


def show(title: str, table: Table, out: TextIO) -> None:
    """A Markdown table: rows are dicts of one shape."""
    head = list(table[0])
    rows = [[_cell(row[name]) for name in head] for row in table]
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    print(f"\n{title}\n", file=out)
    for line in lines:
        cells = (text.ljust(width) for text, width in zip(line, widths, strict=True))
        print(f"| {' | '.join(cells)} |", file=out)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def tell(tables: dict[str, Table], figures: dict[str, Any], *, as_json: bool) -> None:
    """The tables; with `as_json` they go to stderr, and one line of all of it to stdout."""
    out = sys.stderr if as_json else sys.stdout
    runs_on = machine()
    print(", ".join(f"{name} {value}" for name, value in runs_on.items()), file=out)
    for title, table in tables.items():
        show(title, table, out)
    print("\n" + ", ".join(f"{name} {_cell(value)}" for name, value in figures.items()), file=out)
    if as_json:
        print(json.dumps({**figures, "machine": runs_on, "tables": tables}))
