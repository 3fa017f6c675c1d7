"""Run of `pipeline`: each size in turn, with a row for each measure, and the missed targets."""

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from django.test.utils import override_settings
from pyspark.sql import SparkSession

from benchmarks.database import own_database
from benchmarks.pipeline import consume, export, history, memory, publish, rollup
from benchmarks.pipeline.memory import DriverMemory
from benchmarks.report import Table, print_report
from pulljobs.lake.spark import session

TARGETS: Final = {
    "export_of_adbc": (">=", 0.6),
    "rollup_of_bare": ("<", 3.0),
    "publish_of_insert": (">=", 0.5),
    "consume_of_raw": (">=", 0.5),
    "export_per_row_growth": ("<=", 1.25),
    "rollup_per_row_growth": ("<=", 1.25),
    "publish_per_row_growth": ("<=", 1.25),
    "consume_per_row_growth": ("<=", 1.25),
    "python_memory_growth": ("<=", 1.1),
    "jvm_memory_growth": ("<=", 1.1),
}
WARM_UP: Final = 200_000
"""Rows after which the JVM has compiled what each batch of a stream runs."""
WORDS: Final = {
    "export": "export",
    "rollup": "rollup",
    "publish": "atomic publish",
    "consume": "streaming consumer",
    "insert": "raw INSERT ... SELECT from staging",
    "raw_claim": "raw claim and finish",
}
"""Names in the table of the measures whose time for a row is compared between sizes."""


def run(options: argparse.Namespace) -> None:
    """Measure all sizes in one Spark session that has warmed up, and report the figures."""
    table: Table = []
    first: Table = []
    figures: dict[str, Any] = {}
    conf = [("spark.driver.memory", options.memory)]
    started = time.monotonic()
    with session.open_session("benchmark", master=f"local[{options.tasks}]", conf=conf) as spark:
        figures["session_start_seconds"] = time.monotonic() - started
        _measure(spark, options, WARM_UP, first, {})
        memories = [_measure(spark, options, rows, table, figures) for rows in options.rows]
    figures |= _growth(table, memories)
    print_report(
        {"Pipeline": table, "The first of the session": first},
        figures | {"missed": _missed(figures)},
        as_json=options.json,
    )


def _measure(
    spark: SparkSession,
    options: argparse.Namespace,
    rows: int,
    table: Table,
    figures: dict[str, Any],
) -> DriverMemory:
    """Measure with `rows` rows in a new database and lake. Return the Spark driver's memory.

    Add rows to `table` and ratios to `figures`.
    """
    with _place() as folder:
        memory.start()
        if {"export", "rollup"} & set(options.parts):
            _history(spark, options, rows, table, figures)
        if rows <= options.most:
            _jobs(spark, options, rows, folder, table, figures)
        return memory.read_memory(spark)


@contextmanager
def _place() -> Iterator[Path]:
    with (
        TemporaryDirectory() as folder,
        own_database(),
        override_settings(PULLJOBS={"LAKE": f"{folder}/lake"}),
    ):
        yield Path(folder)


def _history(
    spark: SparkSession,
    options: argparse.Namespace,
    rows: int,
    table: Table,
    figures: dict[str, Any],
) -> None:
    moved = export.measure(spark, history.fill(rows), options.tasks, options.rounds)
    _add_row(table, rows, f"ADBC alone, {options.tasks} processes", moved.rows, moved.adbc)
    _add_row(table, rows, f"export, {options.tasks} tasks", moved.rows, moved.ours)
    figures["export_of_adbc"] = moved.ratio
    if "rollup" in options.parts:
        rolled = rollup.measure(spark, options.rounds)
        _add_row(table, rows, "bare read and group by, counts only", rows, rolled.counts)
        _add_row(table, rows, "bare read and group by, the same figures", rows, rolled.bare)
        _add_row(table, rows, "rollup", rows, rolled.ours)
        _keep_largest(figures, "rollup_of_bare", rolled.of_bare)
        _keep_largest(figures, "rollup_of_counts", rolled.ours / rolled.counts)


def _keep_largest(figures: dict[str, Any], name: str, ratio: float) -> None:
    """Store the ratio under its name if it is larger than that of earlier sizes."""
    figures[name] = max(ratio, figures.get(name, ratio))


def _jobs(
    spark: SparkSession,
    options: argparse.Namespace,
    rows: int,
    folder: Path,
    table: Table,
    figures: dict[str, Any],
) -> None:
    history.clear()
    if "publish" in options.parts:
        published = publish.measure(spark, rows, options.rounds, folder / "rows")
        _add_row(table, rows, "raw COPY into staging", rows, published.copy)
        _add_row(table, rows, "raw INSERT ... SELECT from staging", rows, published.insert)
        _add_row(table, rows, "atomic publish", rows, published.ours)
        figures["publish_of_insert"] = published.ratio
    if "consume" in options.parts:
        consumed = consume.measure(spark, rows, options.batch, options.rounds, folder / "streams")
        _add_row(table, rows, f"raw claim and finish, {options.batch:,}", rows, consumed.raw)
        _add_row(table, rows, f"streaming consumer, {options.batch:,}", rows, consumed.ours)
        figures["consume_of_raw"] = consumed.ratio


def _add_row(table: Table, size: int, what: str, rows: int, seconds: float) -> None:
    row = {"size": size, "what": what, "rows": rows, "seconds": seconds, "rows/s": rows / seconds}
    table.append(row)
    print(f"{size:,}: {what}: {seconds:.2f} s, {rows / seconds:,.0f} rows/s", file=sys.stderr)


def _growth(table: Table, memories: list[DriverMemory]) -> dict[str, Any]:
    """Return the growth of the time for a row, and of memory, from the first size to the last."""
    figures: dict[str, Any] = {
        "python_memory_growth": memories[-1].python_mib / memories[0].python_mib,
        "jvm_memory_growth": memories[-1].jvm_mib / memories[0].jvm_mib,
    }
    for name, words in WORDS.items():
        rows = [row for row in table if row["what"].partition(",")[0] == words]
        if len(rows) > 1:
            figures[f"{name}_per_row_growth"] = rows[0]["rows/s"] / rows[-1]["rows/s"]
    return figures


def _missed(figures: dict[str, Any]) -> str:
    """Return the targets that were measured and not met, as text, or `none`."""
    missed = [
        f"{name} {sign} {target}"
        for name, (sign, target) in TARGETS.items()
        if name in figures and not _holds(figures[name], sign, target)
    ]
    return "; ".join(missed) or "none"


def _holds(value: float, sign: str, target: float) -> bool:
    return {">=": value >= target, "<=": value <= target, "<": value < target}[sign]
