"""Counter of hours in the calling process, for few rows: Spark would need longer to start."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pulljobs.lake.rollups import arrow_published, arrow_settled, arrow_sketches, published
from pulljobs.lake.rollups.arrow_errors import ErrorTally
from pulljobs.lake.rollups.arrow_settled import SettlementTally
from pulljobs.lake.rollups.counting import (
    DEATH_COLUMNS,
    PUBLISHED_COLUMNS,
    SETTLED_COLUMNS,
    Sources,
)
from pulljobs.lake.rollups.counts import Counts, Rows, Sketches
from pulljobs.lake.rollups.hours import EPOCH, HOUR, hour_at
from pulljobs.lake.rollups.published import Audience
from pulljobs.lake.spark.tables import LoggedFile, Table
from pulljobs.progress import show_progress

T = TypeVar("T")
HOUR_MICROSECONDS: Final = 3_600_000_000
ENCODED: Final = ("node_id", "state", "reason", "error")
"""Columns of settlements with many equal values, which stay numbers of a dictionary."""
BATCH: Final = 250_000
"""Rows that are counted at once, about 50 MB. Fewer take more calls of Arrow for the same rows."""


class ArrowCounter:
    def count(self, sources: Sources, audience: Audience) -> Rows:
        rows: Rows = defaultdict(Counts)
        _count_settled(sources, rows)
        channels = arrow_published.count_channels(_read_messages(sources))
        published.count(
            channels,
            audience,
            rows,
            lambda edges: arrow_published.count_edges(_read_messages(sources), edges),
        )
        return dict(rows)

    def merge(self, members: Sequence[Sequence[Sketches]]) -> dict[int, Sketches]:
        return arrow_sketches.merge(members)

    def list_hours(
        self, table: Table, files: Sequence[LoggedFile], event: str, low_xid: int
    ) -> set[datetime]:
        time, xid = f"{event}_at", f"{event}_xid"
        hours: set[datetime] = set()
        for batch in table.read_here(files, [time, xid]):
            later = batch.filter(pc.greater_equal(batch[xid], low_xid))
            hours |= {hour_at(hour) for hour in pc.unique(_find_hours(later[time])).to_pylist()}
        return hours


def _count_settled(sources: Sources, rows: Rows) -> None:
    first_deaths = arrow_settled.find_first_deaths(
        _read_settlements(sources, sources.deaths, DEATH_COLUMNS)
    )
    settled = _read_settlements(sources, sources.settled, SETTLED_COLUMNS)
    settled = _filter_hours(settled, "settled_at", sources.hours)
    columns = ((each, arrow_settled.choose_columns(each, first_deaths)) for each in settled)
    counts, errors = SettlementTally(rows), ErrorTally(rows)
    with show_progress("rollup", "rows", sum(file.rows for file in sources.settled)) as shown:
        for settlements, counted in _read_ahead(columns):
            counts.add(counted)
            errors.add(settlements)
            shown.advance(len(settlements))
    counts.end()
    errors.end()


def _read_settlements(
    sources: Sources, files: Sequence[LoggedFile], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    encoded = [name for name in ENCODED if name in columns]
    return sources.archive.read_here(files, columns, encoded=encoded, batch_rows=BATCH)


def _read_ahead(items: Iterator[T]) -> Iterator[T]:
    """Yield the items. A thread reads the next one while the caller works on the last."""
    with ThreadPoolExecutor(1) as thread:
        ahead = thread.submit(next, items, None)
        while (item := ahead.result()) is not None:
            ahead = thread.submit(next, items, None)
            yield item


def _read_messages(sources: Sources) -> Iterator[pa.Table]:
    messages = sources.messages.read_here(sources.published, PUBLISHED_COLUMNS)
    return _filter_hours(messages, "published_at", sources.hours)


def _filter_hours(
    batches: Iterator[pa.RecordBatch], time: str, hours: set[datetime]
) -> Iterator[pa.Table]:
    """Yield the rows whose column `time` is in these hours, with the hour as a number.

    The number is in the column `hour`, in hours since 1970.
    """
    wanted = pa.array([(hour - EPOCH) // HOUR for hour in hours], pa.int64())
    for batch in batches:
        rows = pa.Table.from_batches([batch]).append_column("hour", _find_hours(batch[time]))
        is_wanted = pc.is_in(rows["hour"], value_set=wanted)
        if not pc.all(is_wanted).as_py():
            rows = rows.filter(is_wanted)
        if len(rows):
            yield rows


def _find_hours(times: pa.Array) -> pa.Array:
    return pc.divide(times.cast(pa.int64()), HOUR_MICROSECONDS)
