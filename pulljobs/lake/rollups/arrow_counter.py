"""Counter of hours in the calling process, for few rows: Spark would need longer to start."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Final

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

HOUR_MICROSECONDS: Final = 3_600_000_000


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
        return {place: arrow_sketches.merge(parts) for place, parts in enumerate(members)}

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
    deaths = sources.archive.read_here(sources.deaths, DEATH_COLUMNS)
    first_deaths = arrow_settled.find_first_deaths(deaths)
    counts, errors = SettlementTally(first_deaths, rows), ErrorTally(rows)
    settled = sources.archive.read_here(sources.settled, SETTLED_COLUMNS)
    with show_progress("rollup", "rows", sum(file.rows for file in sources.settled)) as shown:
        for settlements in _read_ahead(_filter_hours(settled, "settled_at", sources.hours)):
            counts.add(settlements)
            errors.add(settlements)
            shown.advance(len(settlements))
    counts.end()
    errors.end()


def _read_ahead(tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """Yield the tables, each of which a thread reads while the caller counts the one before."""
    with ThreadPoolExecutor(1) as thread:
        ahead = thread.submit(next, tables, None)
        while (table := ahead.result()) is not None:
            ahead = thread.submit(next, tables, None)
            yield table


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
        yield rows if pc.all(is_wanted).as_py() else rows.filter(is_wanted)


def _find_hours(times: pa.Array) -> pa.Array:
    return pc.divide(times.cast(pa.int64()), HOUR_MICROSECONDS)
