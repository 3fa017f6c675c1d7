"""Whether a day is the same in PostgreSQL and in the lake: count, sum of ids, checksum."""

from collections.abc import Collection, Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from django.db import connections

from pulljobs import ids
from pulljobs.errors import LakeError
from pulljobs.lake import ledger
from pulljobs.lake.models import LakeDay
from pulljobs.lake.spark import checksums, progress, session
from pulljobs.lake.spark.tables import Held, Table
from pulljobs.storage.partitions import Partition
from pyspark_pulljobs import checking
from pyspark_pulljobs.checking import Found, Part, Sums
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.selecting import ADBC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PARTITIONED: Final = {"archive": "pulljobs_archived_job", "messages": "pulljobs_message"}
"""The table of PostgreSQL, by that of the lake."""
PART: Final = timedelta(hours=2)
"""What one statement reads: its snapshot holds back vacuum meanwhile."""
SHOWN: Final = 10
"""Ids told of each kind of difference."""


class Compared(NamedTuple):
    """One day of one table of the lake."""

    table: str
    day: date
    ours: Sums
    lakes: Sums
    pending: int
    """Rows that no run has exported yet; they are in neither sum."""
    broken_payloads: int = 0
    """Payloads in the lake that are not what their size and MD5 say."""

    @property
    def is_equal(self) -> bool:
        return self.ours == self.lakes and not self.broken_payloads

    @property
    def partition(self) -> Partition:
        return Partition(PARTITIONED[self.table], self.day)


class Snapshot(NamedTuple):
    """The lake as it was when it held all before that transaction, and nothing else."""

    where: str
    high_xid: int
    files: dict[str, list[Held]]
    """By table of the lake."""

    def frame(self, spark: "SparkSession", table: str, days: Collection[date]) -> "DataFrame":
        held = [one for one in self.files[table] if one.day in days]
        return Table(self.where, table).frame_of(spark, held)


Days = dict[str, list[date]]


def snapshot(using: str, where: str) -> Snapshot:
    """LakeError while a run is open: what it wrote may or may not be there."""
    high = ledger.settled_high(using, where)
    files = {name: Table(where, name).held() for name in TABLES}
    if (cut_off := ledger.open_run(using)) is not None:
        raise LakeError(
            f"Run {cut_off.pk} of the export is open: wait for its end or, if it was cut off, "
            "export again."
        )
    if high != ledger.settled_high(using, where):  # one began and ended meanwhile
        return snapshot(using, where)
    return Snapshot(where, high, files)


def days_here(using: str) -> Days:
    """The days of which PostgreSQL may have rows, by table of the lake."""
    return {table: list(_span(using, PARTITIONED[table])) for table in TABLES}


def days_kept(using: str, where: str) -> Days:
    """Those of them that were not dropped because this lake has them."""
    gone = ledger.gone(using, where)
    return {
        table: [day for day in days if Partition(PARTITIONED[table], day) not in gone]
        for table, days in days_here(using).items()
    }


def compared(spark: "SparkSession", using: str, of: Snapshot, days: Days) -> list[Compared]:
    """Both sides of these days, those that both have nothing of left out."""
    ours = _ours(spark, using, of, days)
    with progress.shown(spark, "read the lake"):
        theirs = {table: _lakes(spark, of, table, days[table]) for table in days}
    found = []
    for table, its in days.items():
        for day in its:
            here, pending = ours[table, day]
            there, broken = theirs[table].get(day, (Sums(), 0))
            if here.rows or there.rows or pending:
                found.append(Compared(table, day, here, there, pending, broken))
    return found


def recorded(using: str, of: Snapshot, found: Iterable[Compared]) -> None:
    """Remember the days that are equal: they may be dropped when they are old enough."""
    for one in found:
        if one.is_equal:
            day = LakeDay(
                table=one.partition.table,
                day=one.day,
                high_xid=of.high_xid,
                rows=one.ours.rows,
                checksum=Decimal(one.ours.checksum),
            )
            ledger.verified(using, of.where, day)
        else:
            ledger.doubted(using, of.where, one.partition.table, one.day)


class Difference(NamedTuple):
    """Ids, some of them, by where they are or what they say."""

    only_here: list[int]
    only_in_lake: list[int]
    changed: list[int]


KIND_OF_DIFFERENCE: Final = (
    "CASE WHEN lakes IS NULL THEN 'only_here' WHEN ours IS NULL THEN 'only_in_lake'"
    " WHEN times > 1 OR lakes <> ours THEN 'changed' END"
)


def difference(spark: "SparkSession", using: str, of: Snapshot, one: Compared) -> Difference:
    """Which rows of a day differ; no more of them come to this process than are told."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    parts = list(_parts(using, of, one.table, one.day))
    asked = spark.createDataFrame([(part.query,) for part in parts], "query string")
    rows_of = partial(checking.rows, session.dsn(), ADBC)
    here = asked.repartition(len(parts)).mapInArrow(rows_of, "id long, ours long")
    checksum = f.expr(f"cast({checksums.expression(one.table)} AS long)")
    there = of.frame(spark, one.table, [one.day]).select("id", checksum.alias("checksum"))
    lakes = there.groupBy("id").agg(f.min("checksum").alias("lakes"), f.count("*").alias("times"))
    kind = f.expr(KIND_OF_DIFFERENCE).alias("kind")
    differing = here.join(lakes, "id", "full").select("id", kind).where("kind IS NOT NULL")
    place = f.row_number().over(Window.partitionBy("kind").orderBy("id"))
    told = differing.withColumn("place", place).where(f"place <= {SHOWN}").collect()
    return Difference(
        *(sorted(row.id for row in told if row.kind == name) for name in Difference._fields)
    )


def _ours(
    spark: "SparkSession", using: str, of: Snapshot, days: Days
) -> dict[tuple[str, date], tuple[Sums, int]]:
    parts = [
        part for table in days for day in days[table] for part in _parts(using, of, table, day)
    ]
    summed = partial(checking.summed, session.dsn(), ADBC)
    found: list[Found] = []
    if parts:
        tasks = min(len(parts), 4 * spark.sparkContext.defaultParallelism)
        with progress.shown(spark, "read PostgreSQL"):
            found = spark.sparkContext.parallelize(parts, tasks).mapPartitions(summed).collect()
    total = {(table, day): (Sums(), 0) for table in days for day in days[table]}
    for one in found:
        sums, pending = total[one.table, one.day]
        total[one.table, one.day] = (sums.plus(one.sums), pending + one.pending)
    return total


def _lakes(
    spark: "SparkSession", of: Snapshot, table: str, days: Collection[date]
) -> dict[date, tuple[Sums, int]]:
    from pyspark.sql import functions as f

    frame = of.frame(spark, table, set(days))
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


def _parts(using: str, of: Snapshot, table: str, day: date) -> Iterator[Part]:
    start, end = (ids.time_of(bound) for bound in Partition(table, day).bounds)
    while start < end:
        params = {
            "low_id": ids.first_of(start),
            "high_id": ids.first_of(start + PART),
            "high_xid": of.high_xid,
        }
        yield Part(table, day, ledger.bound(using, f"checksum_{table}", params))
        start += PART


def _span(using: str, table: str) -> Iterator[date]:
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT min(id), max(id) FROM {table}")
        [(low, high)] = cursor.fetchall()
    if low is not None:
        day = ids.time_of(low).date()
        while day <= ids.time_of(high).date():
            yield day
            day += timedelta(days=1)
