"""The hours that a run counts, and the files of the lake that hold their rows."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from pulljobs.lake.rollups.counts import Key
from pulljobs.lake.spark.tables import LoggedFile, Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
SKEW: Final = HOUR
"""Largest time between a row's timestamp and its id, which decides its day."""
RUN_IN_PATH: Final = re.compile(r"/run(\d+)-")


class Span(NamedTuple):
    """Range of hours without a gap. Its `end` is exclusive."""

    start: datetime
    end: datetime

    @property
    def days(self) -> set[date]:
        """Days whose partitions may hold rows of these hours."""
        first, last = (self.start - SKEW).date(), (self.end + SKEW).date()
        return {first + timedelta(days=n) for n in range((last - first).days + 1)}


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """Files of a table at the start of the run, because exports may continue."""

    table: Table
    last_run: int
    files: list[LoggedFile]

    @classmethod
    def take(cls, table: Table) -> "TableSnapshot":
        last_run = table.last_run()
        files = [file for file in table.list_files() if run_of(file) <= last_run]
        return cls(table, last_run, files)

    def since(self, run: int) -> list[LoggedFile]:
        """Return the files of later runs."""
        return [file for file in self.files if run_of(file) > run]

    @property
    def rewritten(self) -> list[LoggedFile]:
        """Files with rows of any run, because the table was compacted."""
        return [file for file in self.files if not run_of(file)]

    def during(self, spans: Iterable[Span]) -> list[LoggedFile]:
        days = set().union(*(span.days for span in spans))
        return [file for file in self.files if file.day in days]

    def frame(
        self, spark: "SparkSession", files: Iterable[LoggedFile], columns: Sequence[str]
    ) -> "DataFrame":
        return self.table.frame_of(spark, files, columns)


def list_ranges(
    files: Iterable[LoggedFile], column: str, skew: timedelta = SKEW
) -> Iterator[tuple[datetime, datetime]]:
    """Yield earliest and latest times of a column from the log, or of the day if it has none."""
    for held in files:
        day = datetime(held.day.year, held.day.month, held.day.day, tzinfo=UTC)
        yield held.ranges.get(column) or (day - skew, day + timedelta(days=1) + skew)


def run_of(held: LoggedFile) -> int:
    """Return the run of the export that wrote the file, or 0 if the file was rewritten."""
    match = RUN_IN_PATH.search(f"/{held.path}")
    return int(match[1]) if match else 0


def touched(
    spark: "SparkSession", snapshot: TableSnapshot, run: int, low_xid: int, event: str
) -> set[datetime]:
    """Return the hours of rows of later runs.

    The log has the first and the last time of each file. In rewritten files, transaction numbers
    identify these rows. An hour too many does no harm: it is counted once more.
    """
    if snapshot.last_run == run:
        return set()
    time, xid = f"{event}_at", f"{event}_xid"
    hours = between(list_ranges(snapshot.since(run), time))
    rewritten = [file for file in snapshot.rewritten if _is_later(file, xid, low_xid)]
    if rewritten:
        rows = snapshot.frame(spark, rewritten, [time, xid]).where(f"{xid} >= {low_xid}")
        hour = rows.selectExpr(f"unix_seconds({time}) div 3600 AS hour").distinct()
        hours |= {hour_of(row) for row in hour.collect()}
    return hours


def between(ranges: Iterable[tuple[datetime, datetime]]) -> set[datetime]:
    """Return every hour of these ranges."""
    return {
        EPOCH + hour * HOUR
        for first, last in ranges
        for hour in range((first - EPOCH) // HOUR, (last - EPOCH) // HOUR + 1)
    }


def spans(hours: Iterable[datetime]) -> list[Span]:
    """Join adjacent hours into spans."""
    ordered = sorted(set(hours))
    breaks = [later for earlier, later in pairwise(ordered) if later - earlier > HOUR]
    starts = [*ordered[:1], *breaks]
    ends = [start for start in ordered if start + HOUR not in set(ordered)]
    return [Span(start, end + HOUR) for start, end in zip(starts, ends, strict=True)]


def is_in(column: str, spans: Iterable[Span]) -> str:
    """Return a condition of Spark's SQL: the time is in one of these spans."""
    return " OR ".join(
        f"({column} >= {_literal(span.start)} AND {column} < {_literal(span.end)})"
        for span in spans
    )


def by_month(hours: Iterable[datetime]) -> Iterator[set[datetime]]:
    """Yield the hours month by month, so that memory does not grow with the lake's history."""
    months: dict[datetime, set[datetime]] = {}
    for hour in hours:
        months.setdefault(month_of(hour), set()).add(hour)
    for month in sorted(months):
        yield months[month]


def key_of(row: "Row") -> Key:
    """Return the key of a row that Spark counted. Its hour comes from `hour_of`."""
    return Key(row.consumer_id, hour_of(row))


def hour_of(row: "Row") -> datetime:
    """Return the hour of a row, given in hours since 1970, so that time zones do not matter."""
    return EPOCH + int(row.hour) * HOUR


def begin_hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def day_of(time: datetime) -> datetime:
    return begin_hour(time).replace(hour=0)


def month_of(time: datetime) -> datetime:
    return day_of(time).replace(day=1)


def _literal(time: datetime) -> str:
    return f"timestamp'{time:%Y-%m-%d %H:%M:%S}+00:00'"


def _is_later(held: LoggedFile, xid: str, low_xid: int) -> bool:
    """Return True if the file may have rows of this transaction or of a later one."""
    _low, high = held.ranges.get(xid, (0, low_xid))
    return bool(high >= low_xid)
