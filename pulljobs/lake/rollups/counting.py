"""Counts and sketches of some hours by Spark, in one pass over each table."""

from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pulljobs.lake.rollups import errors, published, settled
from pulljobs.lake.rollups.counts import Counts, Rows
from pulljobs.lake.rollups.hours import Span, is_in
from pulljobs.lake.rollups.published import Audience

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Sources:
    """Frames of the lake that a count reads, with more rows than those of the hours."""

    archive: "DataFrame"
    deaths: "DataFrame"
    """Settlements since the oldest of these jobs was created."""
    deaths_rows: int
    messages: "DataFrame"


def count(
    spark: "SparkSession", sources: Sources, spans: Sequence[Span], audience: Audience
) -> Rows:
    """Count the settlements and publishes of some hours by consumer and hour.

    The queries run at the same time, because Spark plans and compiles each on one core.
    """
    rows: Rows = defaultdict(Counts)
    archive = sources.archive.where(is_in("settled_at", spans))
    messages = sources.messages.where(is_in("published_at", spans))
    with ThreadPoolExecutor(2) as aside:
        channels = aside.submit(published.count_channels, spark, messages)
        shapes = aside.submit(errors.count_shapes, spark, archive)
        settled.count(spark, archive, sources.deaths, sources.deaths_rows, rows)
        errors.add(shapes.result(), rows)
        published.count(spark, messages, channels.result(), audience, rows)
    return dict(rows)
