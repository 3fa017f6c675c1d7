"""Counter of hours in Spark, for many rows, in one pass over each table."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from pulljobs.lake.rollups import (
    published,
    spark_errors,
    spark_published,
    spark_settled,
    spark_sketches,
)
from pulljobs.lake.rollups.counting import (
    DEATH_COLUMNS,
    PUBLISHED_COLUMNS,
    SETTLED_COLUMNS,
    Sources,
)
from pulljobs.lake.rollups.counts import Counts, Rows, Sketches
from pulljobs.lake.rollups.hours import Span, hour_at
from pulljobs.lake.rollups.published import Audience
from pulljobs.lake.spark.tables import LoggedFile, Table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SparkCounter:
    spark: "SparkSession"

    def count(self, sources: Sources, audience: Audience) -> Rows:
        """Return the counts of settlements and messages by consumer and hour.

        The queries run at the same time, because Spark plans and compiles each on one core.
        """
        rows: Rows = defaultdict(Counts)
        spark, spans = self.spark, sources.spans
        archive = sources.archive.frame_of(spark, sources.settled, SETTLED_COLUMNS)
        archive = archive.where(is_in("settled_at", spans))
        messages = sources.messages.frame_of(spark, sources.published, PUBLISHED_COLUMNS)
        messages = messages.where(is_in("published_at", spans))
        deaths = sources.archive.frame_of(spark, sources.deaths, DEATH_COLUMNS)
        with ThreadPoolExecutor(2) as aside:
            channels = aside.submit(spark_published.count_channels, spark, messages)
            shapes = aside.submit(spark_errors.count_shapes, spark, archive)
            deaths_rows = sum(file.rows for file in sources.deaths)
            spark_settled.count(spark, archive, deaths, deaths_rows, rows)
            spark_errors.add(shapes.result(), rows)
            count_edges = partial(spark_published.count_edges, spark, messages)
            published.count(channels.result(), audience, rows, count_edges)
        return dict(rows)

    def merge(self, members: Sequence[Sequence[Sketches]]) -> dict[int, Sketches]:
        return spark_sketches.merge(self.spark, members)

    def list_hours(
        self, table: Table, files: Sequence[LoggedFile], event: str, low_xid: int
    ) -> set[datetime]:
        time, xid = f"{event}_at", f"{event}_xid"
        rows = table.frame_of(self.spark, files, [time, xid]).where(f"{xid} >= {low_xid}")
        hour = rows.selectExpr(f"unix_seconds({time}) div 3600 AS hour").distinct()
        return {hour_at(row.hour) for row in hour.collect()}


def is_in(column: str, spans: Iterable[Span]) -> str:
    """Return a condition of Spark's SQL that is true if the time is in one of these spans."""
    return " OR ".join(
        f"({column} >= {_literal(span.start)} AND {column} < {_literal(span.end)})"
        for span in spans
    )


def _literal(time: datetime) -> str:
    return f"timestamp'{time:%Y-%m-%d %H:%M:%S}+00:00'"
