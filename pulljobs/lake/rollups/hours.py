"""Hours that a run of the rollup counts, and the files of the lake that have their rows."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Final, NamedTuple

from pulljobs.lake.spark.tables import LoggedFile, Table

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
SKEW: Final = HOUR
"""Largest time between a row's timestamp and its id, which decides its day."""
RUN_IN_PATH: Final = re.compile(r"/run(\d+)-")


class Span(NamedTuple):
    """Range of hours without a gap, from `start` to before `end`."""

    start: datetime
    end: datetime

    @property
    def days(self) -> set[date]:
        """Days whose partitions may hold rows of these hours."""
        first, last = (self.start - SKEW).date(), (self.end + SKEW).date()
        return {first + timedelta(days=n) for n in range((last - first).days + 1)}


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """Files of a table when the rollup began. Exports may add files in the meantime."""

    table: Table
    last_run: int
    """Number of the last export run with files in the table."""
    files: list[LoggedFile]

    @classmethod
    def take(cls, table: Table) -> "TableSnapshot":
        last_run = table.last_run()
        files = [file for file in table.list_files() if run_of(file) <= last_run]
        return cls(table, last_run, files)

    def since(self, run: int) -> list[LoggedFile]:
        """Return the files that export runs after `run` wrote."""
        return [file for file in self.files if run_of(file) > run]

    @property
    def rewritten(self) -> list[LoggedFile]:
        """Files that compaction or erasure wrote, with rows of any export run."""
        return [file for file in self.files if not run_of(file)]

    def during(self, spans: Iterable[Span]) -> list[LoggedFile]:
        """Return the files of the days whose partitions may hold rows of these spans."""
        days = set().union(*(span.days for span in spans))
        return [file for file in self.files if file.day in days]

    def rewritten_since(self, xid: str, low_xid: int) -> list[LoggedFile]:
        """Return the rewritten files that may have rows of transactions from `low_xid` on.

        `xid` is the column with the number of the transaction.
        """
        return [file for file in self.rewritten if _is_later(file, xid, low_xid)]


def list_ranges(
    files: Iterable[LoggedFile], column: str, skew: timedelta = SKEW
) -> Iterator[tuple[datetime, datetime]]:
    """Yield the first and the last time of a column, for each file.

    They are from the Delta log. Where the log has none, they are those of the file's day, with
    `skew` before and after it.
    """
    for held in files:
        day = datetime(held.day.year, held.day.month, held.day.day, tzinfo=UTC)
        yield held.ranges.get(column) or (day - skew, day + timedelta(days=1) + skew)


def run_of(held: LoggedFile) -> int:
    """Return the number of the export run that wrote the file, or 0 if it was rewritten."""
    match = RUN_IN_PATH.search(f"/{held.path}")
    return int(match[1]) if match else 0


def between(ranges: Iterable[tuple[datetime, datetime]]) -> set[datetime]:
    """Return the starts of all hours in these ranges of times."""
    return {
        hour_at(hour)
        for first, last in ranges
        for hour in range((first - EPOCH) // HOUR, (last - EPOCH) // HOUR + 1)
    }


def spans(hours: Iterable[datetime]) -> list[Span]:
    """Return the hours as ranges without a gap, in their order."""
    ordered = sorted(set(hours))
    breaks = [later for earlier, later in pairwise(ordered) if later - earlier > HOUR]
    starts = [*ordered[:1], *breaks]
    ends = [start for start in ordered if start + HOUR not in set(ordered)]
    return [Span(start, end + HOUR) for start, end in zip(starts, ends, strict=True)]


def by_month(hours: Iterable[datetime]) -> Iterator[set[datetime]]:
    """Yield the hours of one month after the other, in their order.

    So the memory for their counts does not grow with the history of the lake.
    """
    months: dict[datetime, set[datetime]] = {}
    for hour in hours:
        months.setdefault(month_of(hour), set()).add(hour)
    for month in sorted(months):
        yield months[month]


def hour_at(number: int) -> datetime:
    """Return the start of an hour, from its number of hours since 1970 in UTC."""
    return EPOCH + number * HOUR


def begin_hour(time: datetime) -> datetime:
    return time.replace(minute=0, second=0, microsecond=0)


def day_of(time: datetime) -> datetime:
    return begin_hour(time).replace(hour=0)


def month_of(time: datetime) -> datetime:
    return day_of(time).replace(day=1)


def _is_later(held: LoggedFile, xid: str, low_xid: int) -> bool:
    """Return True if the file may have rows of the transaction `low_xid` or a later one.

    `xid` is the column with the number of the transaction.
    """
    _low, high = held.ranges.get(xid, (0, low_xid))
    return bool(high >= low_xid)
