"""Whether a day is the same in PostgreSQL and in the lake: count, sum of ids, checksum."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from django.db import connections

from pulljobs import ids
from pulljobs.errors import LakeError
from pulljobs.models import LakeDay
from pulljobs.spark import checksums, progress, session
from pulljobs.spark.rows import each
from pulljobs.spark.tables import Held, Table
from pulljobs.storage import lake
from pulljobs.storage.partitions import Partition
from pyspark_pulljobs import checking
from pyspark_pulljobs.checking import SCHEMA, Found, Part, Sums
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.selecting import ADBC, batches

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
    high = lake.settled_high(using, where)
    files = {name: Table(where, name).held() for name in TABLES}
    if (cut_off := lake.open_run(using)) is not None:
        raise LakeError(
            f"Run {cut_off.pk} of the export is open: wait for its end or, if it was cut off, "
            "export again."
        )
    if high != lake.settled_high(using, where):  # one began and ended meanwhile
        return snapshot(using, where)
    return Snapshot(where, high, files)


def days_here(using: str) -> Days:
    """The days of which PostgreSQL may have rows, by table of the lake."""
    return {table: list(_span(using, PARTITIONED[table])) for table in TABLES}


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
            lake.verified(using, of.where, day)
        else:
            lake.doubted(using, of.where, one.partition.table, one.day)


class Difference(NamedTuple):
    """Ids, some of them, by where they are or what they say."""

    only_here: list[int]
    only_in_lake: list[int]
    changed: list[int]


def difference(spark: "SparkSession", using: str, of: Snapshot, one: Compared) -> Difference:
    """Which rows of a day differ."""
    here: dict[int, int] = {}
    for part in _parts(using, of, one.table, one.day):
        for batch in batches(ADBC, session.dsn(), part.query, SCHEMA):
            exported = batch.filter(batch["exported"])
            here.update(
                zip(exported["id"].to_pylist(), exported["checksum"].to_pylist(), strict=True)
            )
    frame = of.frame(spark, one.table, [one.day])
    rows = frame.selectExpr("id", f"cast({checksums.expression(one.table)} AS long) AS checksum")
    there = defaultdict(list)
    for row in each(rows):
        there[row.id].append(row.checksum)
    return Difference(
        sorted(here.keys() - there.keys())[:SHOWN],
        sorted(there.keys() - here.keys())[:SHOWN],
        sorted(id for id in here.keys() & there.keys() if there[id] != [here[id]])[:SHOWN],
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
        yield Part(table, day, lake.bound(using, f"checksum_{table}", params))
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
