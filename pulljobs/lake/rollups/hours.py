"""The hours that a run counts, and the files of the lake that hold their rows."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow.parquet as pq

from pulljobs.lake.rollups.counts import Key
from pulljobs.lake.spark.tables import Held, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
SKEW: Final = HOUR
"""A row's day is that of its id, which a long transaction gives it after its time was taken."""
OF_RUN: Final = re.compile(r"/run(\d+)-")


class Span(NamedTuple):
    """Hours without a gap; `end` is the first moment after."""

    start: datetime
    end: datetime

    @property
    def days(self) -> set[date]:
        """Partitions that may hold its rows."""
        first, last = (self.start - SKEW).date(), (self.end + SKEW).date()
        return {first + timedelta(days=n) for n in range((last - first).days + 1)}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table as it was when the run began: exports may go on meanwhile."""

    table: Table
    last_run: int
    files: list[Held]

    @classmethod
    def of(cls, table: Table) -> "Snapshot":
        last_run = table.last_run()
        files = [one for one in table.held() if run_of(one) <= last_run]
        return cls(table, last_run, files)

    def since(self, run: int) -> list[Held]:
        """Files of later runs."""
        return [one for one in self.files if run_of(one) > run]

    @property
    def rewritten(self) -> list[Held]:
        """Files with rows of any run, as of one that was compacted."""
        return [one for one in self.files if not run_of(one)]

    def during(self, spans: Iterable[Span]) -> list[Held]:
        days = set().union(*(span.days for span in spans))
        return [one for one in self.files if one.day in days]

    def frame(self, spark: "SparkSession", files: Iterable[Held]) -> "DataFrame":
        return self.table.frame_of(spark, files)

    def ranges(self, files: Iterable[Held], column: str) -> Iterator[tuple[datetime, datetime]]:
        """The earliest and the latest times in that column, by what files say of their parts."""
        filesystem, root = self.table.filesystem
        for held in files:
            yield from _ranges(
                pq.read_metadata(f"{root}/{held.path}", filesystem=filesystem), column
            )


def run_of(held: Held) -> int:
    """Of the export; 0: somebody rewrote the file."""
    found = OF_RUN.search(f"/{held.path}")
    return int(found[1]) if found else 0


def touched(
    spark: "SparkSession", snapshot: Snapshot, run: int, low_xid: int, event: str
) -> set[datetime]:
    """Hours that rows of later runs are of.

    In files that somebody rewrote these are told by their transactions; one too many is only
    counted once more.
    """
    if snapshot.last_run == run:
        return set()
    new = snapshot.frame(spark, snapshot.since(run))
    rewritten = snapshot.frame(spark, snapshot.rewritten).where(f"{event}_xid >= {low_xid}")
    hours = new.unionByName(rewritten).selectExpr(f"unix_seconds({event}_at) div 3600 AS hour")
    return {hour_of(row) for row in hours.distinct().collect()}


def between(ranges: Iterable[tuple[datetime, datetime]]) -> set[datetime]:
    """Every hour of these."""
    return {
        EPOCH + hour * HOUR
        for first, last in ranges
        for hour in range((first - EPOCH) // HOUR, (last - EPOCH) // HOUR + 1)
    }


def spans(hours: Iterable[datetime]) -> list[Span]:
    """The same hours, those that follow each other together."""
    ordered = sorted(set(hours))
    breaks = [later for earlier, later in pairwise(ordered) if later - earlier > HOUR]
    starts = [*ordered[:1], *breaks]
    ends = [start for start in ordered if start + HOUR not in set(ordered)]
    return [Span(start, end + HOUR) for start, end in zip(starts, ends, strict=True)]


def is_in(column: str, spans: Iterable[Span]) -> str:
    """In Spark's SQL: whether a time is in one of these."""
    return " OR ".join(
        f"({column} >= {_literal(span.start)} AND {column} < {_literal(span.end)})"
        for span in spans
    )


def by_month(hours: Iterable[datetime]) -> Iterator[set[datetime]]:
    """So much at once: what a run holds in memory does not grow with the history of the lake."""
    months: dict[datetime, set[datetime]] = {}
    for hour in hours:
        months.setdefault(month_of(hour), set()).add(hour)
    for month in sorted(months):
        yield months[month]


def key_of(row: "Row") -> Key:
    """Of one that Spark counted, with the hour as `hour_of` takes it."""
    return Key(row.consumer_id, hour_of(row))


def hour_of(row: "Row") -> datetime:
    """Hours since 1970, so that no time zone of Spark's or of this machine plays a part."""
    return EPOCH + int(row.hour) * HOUR


def day_of(time: datetime) -> datetime:
    return time.replace(hour=0, minute=0, second=0, microsecond=0)


def month_of(time: datetime) -> datetime:
    return day_of(time).replace(day=1)


def _literal(time: datetime) -> str:
    return f"timestamp'{time:%Y-%m-%d %H:%M:%S}+00:00'"


def _ranges(metadata: pq.FileMetaData, column: str) -> Iterator[tuple[datetime, datetime]]:
    place = metadata.schema.names.index(column)
    for group in range(metadata.num_row_groups):
        statistics = metadata.row_group(group).column(place).statistics
        if statistics is not None and statistics.has_min_max:
            yield statistics.min, statistics.max
