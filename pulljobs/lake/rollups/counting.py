"""What became of jobs in some hours: counted and sketched by Spark, in a pass over each table."""

from collections import defaultdict
from collections.abc import Sequence
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
    """Rows of the lake that a count reads; more than those of the hours."""

    archive: "DataFrame"
    deaths: "DataFrame"
    """Settlements since the oldest of these jobs was created."""
    messages: "DataFrame"


def count(
    spark: "SparkSession", sources: Sources, spans: Sequence[Span], audience: Audience
) -> Rows:
    """Every consumer and hour that something was settled in, or published to."""
    rows: Rows = defaultdict(Counts)
    archive = sources.archive.where(is_in("settled_at", spans))
    settled.count(spark, archive, sources.deaths, rows)
    errors.count(spark, archive, rows)
    messages = sources.messages.where(is_in("published_at", spans))
    published.count(spark, messages, audience, rows)
    return dict(rows)
