"""Rows read by ADBC alone, by processes without Spark and without files."""

import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from itertools import pairwise
from multiprocessing import get_context
from typing import Final

import django

from benchmarks.database import query
from pulljobs.lake import ledger
from pyspark_pulljobs import adbc

TABLES: Final = {"export_archive": "pulljobs_archived_job", "export_messages": "pulljobs_message"}
ALL: Final = {"low_xid": 0, "high_xid": 2**62}


@contextmanager
def start_readers(processes: int) -> Iterator[ProcessPoolExecutor]:
    """Run reading processes during the block, which begins when all have loaded their modules."""
    context = get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=django.setup) as pool:
        list(pool.map(_ready, range(processes)))
        yield pool


def read_seconds(pool: ProcessPoolExecutor, dsn: str, processes: int) -> tuple[int, float]:
    """Read all rows in parallel. Return the number of rows and the seconds that it took."""
    texts = [text for name in TABLES for text in _slices(name, processes)]
    started = time.monotonic()
    rows = sum(pool.map(_read, [dsn] * len(texts), texts))
    return rows, time.monotonic() - started


def _slices(name: str, parts: int) -> list[str]:
    """Divide the ids into `parts` ranges of about equal rows. Return the export's query of each."""
    fractions = ", ".join(str(number / parts) for number in range(1, parts))
    [(cuts,)] = query(
        f"SELECT percentile_disc(ARRAY[{fractions}]::float8[]) WITHIN GROUP (ORDER BY id)"
        f" FROM {TABLES[name]} TABLESAMPLE SYSTEM (5)"
    )
    bounds: list[int] = [0, *(cuts or []), 2**63 - 1]  # type: ignore[misc]  # rows are untyped
    return [
        ledger.inline_parameters(
            "default",
            name,
            {**ALL, "low_id": low, "high_id": high, "payload_cap": None, "channel_ids": None},
        )
        for low, high in pairwise(bounds)
    ]


def _ready(_number: int) -> None:
    time.sleep(0.5)  # Long enough for each process to take one call.


def _read(dsn: str, text: str) -> int:
    with closing(adbc.connect(dsn)) as connection, connection.execute(text) as batches:
        return sum(batch.num_rows for batch in batches)
