"""Lake of many exports of one row: its files and the time of a query, before and after upkeep."""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, Final, NoReturn

import duckdb
from deltalake import DeltaTable
from django.test.utils import override_settings

from benchmarks.database import own_database, query
from benchmarks.pipeline import history
from benchmarks.report import Table, print_report
from pulljobs.conf import settings
from pulljobs.lake.spark import compacting, exporting
from pulljobs.lake.spark.exporting import ExportOptions

QUERY: Final = "SELECT consumer, state, count(*) FROM archive GROUP BY ALL"
ROUNDS: Final = 9
SINCE: Final = "now() - interval '2 days' + interval '{number} ms'"


def run(options: argparse.Namespace) -> None:
    """Export row by row, compact and vacuum the lake, and report its files and times."""
    with _lake() as lake:
        seconds = [_export_row(number) for number in range(options.exports)]
        table: Table = [_look(lake, f"{options.exports} exports")]
        compacting.compact(settings().DATABASE, str(lake))
        table.append(_look(lake, "compact"))
        compacting.vacuum(settings().DATABASE, str(lake), timedelta(0))
        table.append(_look(lake, "vacuum of all old files"))
        seconds.append(_export_row(options.exports))
    figures = {
        "first_export_seconds": seconds[0],
        "last_export_seconds": seconds[-2],
        "export_seconds_after": seconds[-1],
        "query_ratio": table[0]["query ms"] / table[-1]["query ms"],
    }
    print_report({"Archive": table}, figures, as_json=options.json)


@contextmanager
def _lake() -> Iterator[Path]:
    with (
        TemporaryDirectory() as folder,
        own_database(durable=False),
        override_settings(PULLJOBS={"LAKE": f"{folder}/lake"}),
    ):
        history.fill_consumers()
        yield Path(folder, "lake")


def _export_row(number: int) -> float:
    """Settle a job and export it, and return the seconds of the export."""
    since = SINCE.format(number=number)
    query(history.MESSAGES.format(messages=1, since=since))
    history.settle(1, 1, 1, since)
    done = exporting.export(ExportOptions(), _refuse_spark)
    assert done.rows == {"archive": 1, "messages": 1}
    return done.seconds


def _refuse_spark(**_hints: int) -> NoReturn:
    raise AssertionError("one row starts no Spark")


def _look(lake: Path, stage: str) -> dict[str, Any]:
    """Return a row with the numbers of files of the archive, and the times to open and query it."""
    archive = lake / "archive"
    return {
        "after": stage,
        "files of the table": len(DeltaTable(str(archive)).file_uris()),
        "files on disk": len(list(archive.rglob("*.parquet"))) - _count_checkpoints(archive),
        "files of the log": len(list((archive / "_delta_log").iterdir())),
        "open ms": median(_time_query(archive, "SELECT 1") for _ in range(ROUNDS)) * 1000,
        "query ms": median(_time_query(archive, QUERY) for _ in range(ROUNDS)) * 1000,
    }


def _count_checkpoints(archive: Path) -> int:
    return len(list((archive / "_delta_log").glob("*.parquet")))


def _time_query(archive: Path, text: str) -> float:
    started = time.monotonic()
    with duckdb.connect() as connection:
        rows = DeltaTable(str(archive)).to_pyarrow_dataset()
        connection.register("archive", rows).execute(text).fetchall()
    return time.monotonic() - started
