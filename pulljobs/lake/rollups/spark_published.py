"""Counts of messages by Spark. `arrow_published` has the same counts."""

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from pulljobs.lake.rollups.counts import KEPT_KEYS, TRACKED_KEYS, Key, Sketches
from pulljobs.lake.rollups.hours import hour_at
from pulljobs.lake.rollups.published import ChannelHour, Edge
from pulljobs.lake.rollups.spark_sketches import take_keys
from pulljobs.lake.spark.frame_rows import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUBLISHED: Final = f"""
SELECT *, approx_top_k_estimate(keys, {KEPT_KEYS}) AS hot_keys
FROM (
    SELECT
        channel_id,
        unix_seconds(published_at) div 3600 AS hour,
        count(*) AS messages,
        approx_top_k_accumulate(key, {TRACKED_KEYS}) FILTER (WHERE key IS NOT NULL) AS keys
    FROM {{messages}}
    GROUP BY ALL
)
"""
AT_EDGES: Final = """
SELECT consumer_id, hour, count(*) AS messages
FROM (
    SELECT channel_id, published_at, unix_seconds(published_at) div 3600 AS hour
    FROM {messages}
)
JOIN {edges} USING (channel_id, hour)
WHERE published_at >= since AND published_at < until
GROUP BY ALL
"""
EDGES: Final = "consumer_id long, channel_id long, hour long, since timestamp, until timestamp"


def count_channels(spark: "SparkSession", messages: "DataFrame") -> list[ChannelHour]:
    """Return the number of messages by channel and hour, with a sketch of their keys."""
    counted = []
    for row in each(spark.sql(PUBLISHED, messages=messages)):
        sketches = Sketches()
        take_keys(sketches, row)
        counted.append(ChannelHour(row.channel_id, row.hour, row.messages, sketches))
    return counted


def count_edges(
    spark: "SparkSession", messages: "DataFrame", edges: Collection[Edge]
) -> Iterator[tuple[Key, int]]:
    given = spark.createDataFrame(sorted(edges), EDGES)
    for row in each(spark.sql(AT_EDGES, messages=messages, edges=given)):
        yield Key(row.consumer_id, hour_at(row.hour)), row.messages
