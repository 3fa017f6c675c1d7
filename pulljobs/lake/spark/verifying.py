"""Verification of days: choice of the days, record of the results, ids of rows that differ."""

from collections.abc import Iterable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from django.db import connections

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.errors import LakeError
from pulljobs.lake import ledger, replicas, verified_days
from pulljobs.lake.models import LakeDay
from pulljobs.lake.spark import checksums, session
from pulljobs.lake.spark.comparing import (
    PARTITIONED,
    DayComparison,
    Days,
    LakeSnapshot,
    parts_of_day,
)
from pulljobs.lake.spark.tables import Table
from pulljobs.storage.partitions import Partition
from pyspark_pulljobs import checking
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.selecting import ADBC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAX_REPORTED: Final = 10
"""Largest number of ids reported for each field of a `Difference`."""


def take_snapshot(using: str, location: str) -> LakeSnapshot:
    """Return the files of the lake at a moment between two export runs.

    Raise LakeError while an export run is open, or if the database knows no run to this lake.
    """
    high = ledger.read_settled_high(using, location)
    files = {name: Table(location, name).list_files() for name in TABLES}
    if (interrupted := ledger.find_open_run(using, location)) is not None:
        raise LakeError(
            f"Run {interrupted.pk} of the export is open: wait for its end or, if it crashed, "
            "export again."
        )
    if high != ledger.read_settled_high(using, location):  # a run began and ended since
        return take_snapshot(using, location)
    if not high and any(files.values()):
        raise LakeError(ledger.UNKNOWN)
    return LakeSnapshot(location, high, files)


def list_days(using: str) -> Days:
    """Return the days from the first to the last row in PostgreSQL, by table of the lake."""
    return {table: list(_list_days_of_table(using, PARTITIONED[table])) for table in TABLES}


def list_kept_days(using: str, location: str) -> Days:
    """Return the days from first to last row in PostgreSQL, without dropped days, by table."""
    dropped = verified_days.find_dropped(using, location)
    return {
        table: [day for day in days if Partition(PARTITIONED[table], day) not in dropped]
        for table, days in list_days(using).items()
    }


def record_results(using: str, snapshot: LakeSnapshot, results: Iterable[DayComparison]) -> None:
    """Record for each compared day whether it is equal in PostgreSQL and in the lake.

    Retention may drop equal days.
    """
    for result in results:
        if result.is_equal:
            day = LakeDay(
                table=result.partition.table,
                day=result.day,
                high_xid=snapshot.high_xid,
                rows=result.database.rows,
                checksum=Decimal(result.database.checksum),
            )
            verified_days.record_verified(using, snapshot.location, day)
        else:
            verified_days.record_doubt(using, snapshot.location, result.partition.table, result.day)


class Difference(NamedTuple):
    """Ids of rows that differ between PostgreSQL and the lake, at most ten in each field."""

    only_here: list[int]
    """Ids of rows that only PostgreSQL has."""
    only_in_lake: list[int]
    changed: list[int]
    """Ids of rows with other contents in the lake, or with several rows there."""


KIND_OF_DIFFERENCE: Final = (
    "CASE WHEN lakes IS NULL THEN 'only_here' WHEN ours IS NULL THEN 'only_in_lake'"
    " WHEN times > 1 OR lakes <> ours THEN 'changed' END"
)


def find_difference(
    spark: "SparkSession", using: str, snapshot: LakeSnapshot, result: DayComparison
) -> Difference:
    """Return the ids of the rows that differ, for a day whose comparison showed a difference."""
    from pyspark.sql import functions as f
    from pyspark.sql.window import Window

    parts = list(parts_of_day(using, snapshot, result.table, result.day))
    asked = spark.createDataFrame([(part.query,) for part in parts], "query string")
    source = session.dsn(replicas.choose_source(using))
    rows_of = partial(checking.read_checksums, source, ADBC)
    count = min(len(parts), settings().LAKE_CONNECTIONS or len(parts))
    here = asked.repartition(count).mapInArrow(rows_of, "id long, ours long")
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


def _list_days_of_table(using: str, table: str) -> Iterator[date]:
    with connections[using].cursor() as cursor:
        cursor.execute(f"SELECT min(id), max(id) FROM {table}")
        [(low, high)] = cursor.fetchall()
    if low is not None:
        day = ids.time_of(low).date()
        while day <= ids.time_of(high).date():
            yield day
            day += timedelta(days=1)
