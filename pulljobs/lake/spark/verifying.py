"""Comparison of days in PostgreSQL and in the lake by count, sum of ids and checksum."""

from collections.abc import Collection, Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from django.db import connections

from pulljobs import ids
from pulljobs.errors import LakeError
from pulljobs.lake import ledger, verified_days
from pulljobs.lake.models import LakeDay
from pulljobs.lake.spark import checksums, progress, session
from pulljobs.lake.spark.tables import LoggedFile, Table
from pulljobs.storage.partitions import Partition
from pyspark_pulljobs import checking
from pyspark_pulljobs.checking import DayPart, PartSums, Sums
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.selecting import ADBC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONED: Final = {"archive": "pulljobs_archived_job", "messages": "pulljobs_message"}
"""Table of PostgreSQL by table of the lake."""
PART_DURATION: Final = timedelta(hours=2)
"""Time range of one statement, whose snapshot holds back vacuum."""
MAX_REPORTED: Final = 10
"""Number of ids reported of each kind of difference."""


class DayComparison(NamedTuple):
    """Result for one day of one table of the lake."""

    table: str
    day: date
    database: Sums
    lake: Sums
    pending: int
    """Rows that are not exported yet, which neither sum includes."""
    broken_payloads: int = 0
    """Payloads in the lake that differ from their size or MD5."""

    @property
    def is_equal(self) -> bool:
        return self.database == self.lake and not self.broken_payloads

    @property
    def partition(self) -> Partition:
        return Partition(PARTITIONED[self.table], self.day)


class LakeSnapshot(NamedTuple):
    """Files of the lake when it held the rows of all transactions before `high_xid`."""

    where: str
    high_xid: int
    files: dict[str, list[LoggedFile]]
    """Files by table of the lake."""

    def frame(self, spark: "SparkSession", table: str, days: Collection[date]) -> "DataFrame":
        held = [file for file in self.files[table] if file.day in days]
        return Table(self.where, table).frame_of(spark, held)


Days = dict[str, list[date]]


def take_snapshot(using: str, where: str) -> LakeSnapshot:
    """Return the files of the lake; raise LakeError while a run is open."""
    high = ledger.read_settled_high(using, where)
    files = {name: Table(where, name).list_files() for name in TABLES}
    if (interrupted := ledger.find_open_run(using)) is not None:
        raise LakeError(
            f"Run {interrupted.pk} of the export is open: wait for its end or, if it crashed, "
            "export again."
        )
    if high != ledger.read_settled_high(using, where):  # a run began and ended since
        return take_snapshot(using, where)
    return LakeSnapshot(where, high, files)


def list_days(using: str) -> Days:
    """Return the days of which PostgreSQL may have rows, by table of the lake."""
    return {table: list(_list_days_of_table(using, PARTITIONED[table])) for table in TABLES}


def list_kept_days(using: str, where: str) -> Days:
    """Return the days of `list_days` that were not dropped because this lake has them."""
    dropped = verified_days.find_dropped(using, where)
    return {
        table: [day for day in days if Partition(PARTITIONED[table], day) not in dropped]
        for table, days in list_days(using).items()
    }


def compare_days(
    spark: "SparkSession", using: str, snapshot: LakeSnapshot, days: Days
) -> list[DayComparison]:
    """Compare these days, and leave out days without rows on either side."""
    database_sums = _sum_postgres(spark, using, snapshot, days)
    with progress.reporting(spark, "read the lake"):
        lake_sums = {table: _sum_lake(spark, snapshot, table, days[table]) for table in days}
    results = []
    for table, table_days in days.items():
        for day in table_days:
            here, pending = database_sums[table, day]
            there, broken = lake_sums[table].get(day, (Sums(), 0))
            if here.rows or there.rows or pending:
                results.append(DayComparison(table, day, here, there, pending, broken))
    return results


def record_results(using: str, snapshot: LakeSnapshot, results: Iterable[DayComparison]) -> None:
    """Record the equal days, which may be dropped once they are old enough."""
    for result in results:
        if result.is_equal:
            day = LakeDay(
                table=result.partition.table,
                day=result.day,
                high_xid=snapshot.high_xid,
                rows=result.database.rows,
                checksum=Decimal(result.database.checksum),
            )
            verified_days.record_verified(using, snapshot.where, day)
        else:
            verified_days.record_doubt(using, snapshot.where, result.partition.table, result.day)


class Difference(NamedTuple):
    """Ids of rows that differ, a few of each kind."""

    only_here: list[int]
    only_in_lake: list[int]
    changed: list[int]


KIND_OF_DIFFERENCE: Final = (
    "CASE WHEN lakes IS NULL THEN 'only_here' WHEN ours IS NULL THEN 'only_in_lake'"
    " WHEN times > 1 OR lakes <> ours THEN 'changed' END"
)


def find_difference(
    spark: "SparkSession", using: str, snapshot: LakeSnapshot, result: DayComparison
) -> Difference:
    """Find rows of a day that differ, and return the ids of those that are reported."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    parts = list(_parts(using, snapshot, result.table, result.day))
    asked = spark.createDataFrame([(part.query,) for part in parts], "query string")
    rows_of = partial(checking.read_checksums, session.dsn(), ADBC)
    here = asked.repartition(len(parts)).mapInArrow(rows_of, "id long, ours long")
    checksum = f.expr(f"cast({checksums.expression(result.table)} AS long)")
    there = snapshot.frame(spark, result.table, [result.day]).select(
        "id", checksum.alias("checksum")
    )
    lakes = there.groupBy("id").agg(f.min("checksum").alias("lakes"), f.count("*").alias("times"))
    kind = f.expr(KIND_OF_DIFFERENCE).alias("kind")
    differing = here.join(lakes, "id", "full").select("id", kind).where("kind IS NOT NULL")
    place = f.row_number().over(Window.partitionBy("kind").orderBy("id"))
    reported = differing.withColumn("place", place).where(f"place <= {MAX_REPORTED}").collect()
    return Difference(
        *(sorted(row.id for row in reported if row.kind == name) for name in Difference._fields)
    )


def _sum_postgres(
    spark: "SparkSession", using: str, snapshot: LakeSnapshot, days: Days
) -> dict[tuple[str, date], tuple[Sums, int]]:
    parts = [
        part
        for table in days
        for day in days[table]
        for part in _parts(using, snapshot, table, day)
    ]
    sum_parts = partial(checking.sum_parts, session.dsn(), ADBC)
    part_sums: list[PartSums] = []
    if parts:
        tasks = min(len(parts), 4 * spark.sparkContext.defaultParallelism)
        with progress.reporting(spark, "read PostgreSQL"):
            part_sums = (
                spark.sparkContext.parallelize(parts, tasks).mapPartitions(sum_parts).collect()
            )
    total = {(table, day): (Sums(), 0) for table in days for day in days[table]}
    for part in part_sums:
        sums, pending = total[part.table, part.day]
        total[part.table, part.day] = (sums.plus(part.sums), pending + part.pending)
    return total


def _sum_lake(
    spark: "SparkSession", snapshot: LakeSnapshot, table: str, days: Collection[date]
) -> dict[date, tuple[Sums, int]]:
    from pyspark.sql import functions as f

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


def _parts(using: str, snapshot: LakeSnapshot, table: str, day: date) -> Iterator[DayPart]:
    start, end = (ids.time_of(bound) for bound in Partition(table, day).bounds)
    while start < end:
        params = {
            "low_id": ids.first_of(start),
            "high_id": ids.first_of(start + PART_DURATION),
            "high_xid": snapshot.high_xid,
        }
        yield DayPart(table, day, ledger.inline_parameters(using, f"checksum_{table}", params))
        start += PART_DURATION


def _list_days_of_table(using: str, table: str) -> Iterator[date]:
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT min(id), max(id) FROM {table}")
        [(low, high)] = cursor.fetchall()
    if low is not None:
        day = ids.time_of(low).date()
        while day <= ids.time_of(high).date():
            yield day
            day += timedelta(days=1)
