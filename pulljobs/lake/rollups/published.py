"""Counts of messages for each consumer that was subscribed to their channel."""

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pulljobs.lake.rollups.counts import KEPT_KEYS, Key, Rows
from pulljobs.lake.rollups.hours import HOUR, hour_of, key_of
from pulljobs.lake.rollups.sketches import TRACKED_KEYS
from pulljobs.lake.spark.frame_rows import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

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


class Subscription(NamedTuple):
    """Time during which messages of a channel go to a consumer."""

    consumer_id: int
    channel_id: int
    since: datetime
    until: datetime

    def covers(self, hour: datetime) -> bool:
        return self.since <= hour and hour + HOUR <= self.until

    def is_during(self, hour: datetime) -> bool:
        return self.since < hour + HOUR and hour < self.until

    def is_at(self, time: datetime) -> bool:
        return self.since <= time < self.until


class Addressed(NamedTuple):
    """Number of messages that were published to a single consumer of their channel."""

    consumer_id: int
    channel_id: int
    at: datetime
    messages: int


class Audience(NamedTuple):
    """Consumers that messages go to."""

    subscriptions: Sequence[Subscription]
    addressed: Sequence[Addressed]


def count_channels(spark: "SparkSession", messages: "DataFrame") -> "list[Row]":
    """Count the messages by channel and hour, with their most frequent keys."""
    return list(each(spark.sql(PUBLISHED, messages=messages)))


def count(
    spark: "SparkSession",
    messages: "DataFrame",
    channels: "Sequence[Row]",
    audience: Audience,
    rows: Rows,
) -> None:
    """Count for each consumer the messages of its channel, of which `channels` has the counts."""
    edges: set[tuple[Any, ...]] = set()
    for row in channels:
        hour = hour_of(row)
        for subscription in audience.subscriptions:
            if subscription.channel_id != row.channel_id or not subscription.is_during(hour):
                continue
            counts = rows[Key(subscription.consumer_id, hour)]
            counts.sketches.take_keys(row)
            if subscription.covers(hour):
                counts.published = row.messages
            else:
                edges.add((*subscription[:2], row.hour, *subscription[2:]))
    _count_edges(spark, messages, edges, rows)
    _leave_out(audience, rows)


def _count_edges(
    spark: "SparkSession", messages: "DataFrame", edges: set[tuple[Any, ...]], rows: Rows
) -> None:
    """Count the hours in which a consumer was created or deleted by the times of messages."""
    if edges:
        given = spark.createDataFrame(
            sorted(edges),
            "consumer_id long, channel_id long, hour long, since timestamp, until timestamp",
        )
        for row in each(spark.sql(AT_EDGES, messages=messages, edges=given)):
            rows[key_of(row)].published = row.messages


def _leave_out(audience: Audience, rows: Rows) -> None:
    """Subtract messages for one consumer from the counts of the others."""
    for addressed in audience.addressed:
        hour = addressed.at.replace(minute=0, second=0, microsecond=0)
        for subscription in audience.subscriptions:
            key = Key(subscription.consumer_id, hour)
            if (
                subscription.channel_id == addressed.channel_id
                and subscription.consumer_id != addressed.consumer_id
                and subscription.is_at(addressed.at)
                and key in rows
            ):
                rows[key].published = max(0, rows[key].published - addressed.messages)
