"""Comparison of days in PostgreSQL and in the lake by count, sum of ids and checksum."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import date, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.lake import ledger, replicas
from pulljobs.lake.spark import checksums, failures, progress, session
from pulljobs.lake.spark.export_run import Sessions
from pulljobs.lake.spark.tables import LoggedFile, Table
from pulljobs.progress import count_items, show_progress
from pulljobs.storage.partitions import Partition
from pyspark_pulljobs import checking, tasks
from pyspark_pulljobs.checking import DayPart, PartSums, Sums
from pyspark_pulljobs.selecting import ADBC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONED: Final = {"archive": "pulljobs_archived_job", "messages": "pulljobs_message"}
"""Table of PostgreSQL by table of the lake."""
PART_DURATION: Final = timedelta(hours=2)
"""Time range of the rows that one statement reads, because its snapshot holds back vacuum."""


class DayComparison(NamedTuple):
    """Row count, sum of ids and checksum of a day of a table, in PostgreSQL and in the lake."""

    table: str
    day: date
    database: Sums
    lake: Sums
    pending: int
    """Number of rows in PostgreSQL that are not exported yet. Neither sum includes them."""
    broken_payloads: int = 0
    """Number of payloads in the lake that differ from their size or MD5."""

    @property
    def is_equal(self) -> bool:
        return self.database == self.lake and not self.broken_payloads

    @property
    def partition(self) -> Partition:
        return Partition(PARTITIONED[self.table], self.day)


class LakeSnapshot(NamedTuple):
    """Files of the lake at a moment when it had all rows of transactions before `high_xid`."""

    location: str
    """Location of the lake."""
    high_xid: int
    files: dict[str, list[LoggedFile]]
    """Files by table of the lake."""

    def count_rows(self, days: "Days") -> int:
        """Return the number of rows of these days, summed over their tables."""
        return sum(
            file.rows for table in days for file in self.files[table] if file.day in days[table]
        )

    def frame(self, spark: "SparkSession", table: str, days: Collection[date]) -> "DataFrame":
        """Return the rows of these days of a table as a DataFrame."""
        held = [file for file in self.files[table] if file.day in days]
        return Table(self.location, table).frame_of(spark, held)


Days = dict[str, list[date]]
"""Days to work on, by table of the lake."""
DaySums = dict[date, tuple[Sums, int]]
"""Sums by day, with the number of rows that are not exported yet, or of broken payloads."""


def compare_days(
    sessions: Sessions, using: str, snapshot: LakeSnapshot, days: Days
) -> list[DayComparison]:
    """Compare these days in PostgreSQL and in the lake, except days that are empty on both sides.

    This process reads few rows itself. For more it opens a session of Spark by `sessions`.
    """
    session.share_password()
    parts = _list_parts(using, snapshot, days)
    source = session.dsn(replicas.choose_source(using))
    if (rows := snapshot.count_rows(days)) < session.SMALL_ROWS:
        part_sums = _sum_here(source, parts)
        lake_sums = {table: _sum_lake_here(snapshot, table, days[table]) for table in days}
    else:
        with sessions(rows=rows) as spark:
            session.tune(spark, rows)
            part_sums = _sum_in_tasks(spark, source, parts)
            with progress.reporting(spark, "read the lake"):
                lake_sums = {name: _sum_lake(spark, snapshot, name, days[name]) for name in days}
    compared = _pair_sums(_sum_days(days, part_sums), lake_sums)
    return [each for each in compared if each.database.rows or each.lake.rows or each.pending]


def _pair_sums(
    database_sums: Mapping[str, DaySums], lake_sums: Mapping[str, DaySums]
) -> Iterator[DayComparison]:
    for table, sums_by_day in database_sums.items():
        for day, (here, pending) in sums_by_day.items():
            there, broken = lake_sums[table].get(day, (Sums(), 0))
            yield DayComparison(table, day, here, there, pending, broken)


def _list_parts(using: str, snapshot: LakeSnapshot, days: Days) -> list[DayPart]:
    return [
        part
        for table in days
        for day in days[table]
        for part in parts_of_day(using, snapshot, table, day)
    ]


def _sum_in_tasks(spark: "SparkSession", source: str, parts: list[DayPart]) -> list[PartSums]:
    if not parts:
        return []
    count = settings().LAKE_CONNECTIONS or 4 * session.count_cores(spark)
    sum_parts = partial(checking.sum_parts, source, ADBC)
    with progress.reporting(spark, "read PostgreSQL"):
        return tasks.call_in_tasks(spark, sum_parts, parts, min(count, len(parts)))


@failures.raising_connection_errors()
def _sum_here(source: str, parts: list[DayPart]) -> list[PartSums]:
    from pyspark_pulljobs import adbc

    with adbc.keep_connections(), ThreadPoolExecutor(replicas.bound_connections()) as pool:
        summed = pool.map(lambda part: list(checking.sum_parts(source, ADBC, [part])), parts)
        with show_progress("read PostgreSQL", "parts", len(parts)) as shown:
            return [sums for some in count_items(summed, shown) for sums in some]


def _sum_days(days: Days, part_sums: Iterable[PartSums]) -> dict[str, DaySums]:
    total: dict[str, DaySums] = {table: dict.fromkeys(days[table], (Sums(), 0)) for table in days}
    for part in part_sums:
        sums, pending = total[part.table][part.day]
        total[part.table][part.day] = (sums.plus(part.sums), pending + part.pending)
    return total


def _sum_lake_here(snapshot: LakeSnapshot, table: str, days: Collection[date]) -> DaySums:
    total: DaySums = {}
    lake, columns = Table(snapshot.location, table), _list_read(table)
    held = [file for file in snapshot.files[table] if file.day in days]
    with show_progress(f"read {table}", "files", len(held)) as shown:
        for file in count_items(held, shown):
            for rows in lake.read_here([file], columns):
                sums, broken = total.get(file.day, (Sums(), 0))
                total[file.day] = (
                    sums.plus(_sum_rows(table, rows)),
                    broken + _count_broken(table, rows),
                )
    return total


def _sum_rows(table: str, rows: pa.RecordBatch) -> Sums:
    return Sums(len(rows), sum(rows["id"].to_pylist()), sum(checksums.compute(table, rows)))


def _count_broken(table: str, rows: pa.RecordBatch) -> int:
    return checksums.count_broken_payloads(rows) if table == "messages" else 0


def _list_read(table: str) -> list[str]:
    """Return the names of the lake's columns that a comparison reads."""
    payload = checksums.PAYLOAD if table == "messages" else ()
    return list(dict.fromkeys([*checksums.COLUMNS[table], *payload]))


def _sum_lake(
    spark: "SparkSession", snapshot: LakeSnapshot, table: str, days: Collection[date]
) -> DaySums:
    from pyspark.sql import functions as f

    if not any(file.day in days for file in snapshot.files[table]):
        return {}
    frame = snapshot.frame(spark, table, set(days))
    broken = f.lit(0)
    if table == "messages":
        broken = f.expr(f"count_if(NOT ({checksums.PAYLOAD_IS_WHOLE}))")
    rows = (
        frame.groupBy("day")
        .agg(
            f.count("*").alias("count"),
            f.sum(f.expr("cast(id AS decimal(38, 0))")).alias("ids"),
            f.sum(f.expr(checksums.expression(table))).alias("checksum"),
            broken.alias("broken"),
        )
        .collect()
    )
    return {
        row.day: (Sums(row["count"], int(row.ids), int(row.checksum)), row.broken) for row in rows
    }


def parts_of_day(using: str, snapshot: LakeSnapshot, table: str, day: date) -> Iterator[DayPart]:
    """Yield ranges of a day's rows, with the queries for their checksums in PostgreSQL.

    Each range covers two hours.
    """
    start, end = (ids.time_of(bound) for bound in Partition(table, day).bounds)
    while start < end:
        params = {
            "low_id": ids.first_of(start),
            "high_id": ids.first_of(start + PART_DURATION),
            "high_xid": snapshot.high_xid,
        }
        yield DayPart(table, day, ledger.inline_parameters(using, f"checksum_{table}", params))
        start += PART_DURATION
