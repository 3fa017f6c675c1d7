"""Quantiles, Markdown tables and the line of JSON of a benchmark."""

import json
import sys
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any, TextIO

from benchmarks.database import machine

Table = list[dict[str, Any]]


def percentiles(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the 50th and 99th percentile in milliseconds, or zeros for no values."""
    if len(seconds) < 2:
        return (seconds[0] * 1000, seconds[0] * 1000) if seconds else (0.0, 0.0)
    return median(seconds) * 1000, quantiles(seconds, n=100, method="inclusive")[98] * 1000


def tenths(seconds: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    """Return the first and the last tenth of a series, at least one value each if it has any."""
    part = max(1, len(seconds) // 10)
    return seconds[:part], seconds[-part:]


def spread(seconds: Sequence[float]) -> str:
    """Return the 50th and 99th percentile in milliseconds as text, empty for no values."""
    return "" if not seconds else "{:.1f} / {:.1f}".format(*percentiles(seconds))


def print_table(title: str, table: Table, out: TextIO) -> None:
    """Print a Markdown table of rows that all have the keys of the first row."""
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


def print_report(tables: dict[str, Table], figures: dict[str, Any], *, as_json: bool) -> None:
    """Print machine, tables and figures.

    With `as_json` they go to stderr, and a line of JSON goes to stdout.
    """
    out = sys.stderr if as_json else sys.stdout
    facts = machine()
    print(", ".join(f"{name} {value}" for name, value in facts.items()), file=out)
    for title, table in tables.items():
        print_table(title, table, out)
    print("\n" + ", ".join(f"{name} {_cell(value)}" for name, value in figures.items()), file=out)
    if as_json:
        print(json.dumps({**figures, "machine": facts, "tables": tables}))
