"""What became of jobs in some hours: counted and sketched by Spark, in a pass over each table."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pulljobs.spark.rollups.counts import (
    KEPT_ERRORS,
    KEPT_KEYS,
    Cost,
    Counts,
    Error,
    Key,
    Rows,
    Sketches,
)
from pulljobs.spark.rollups.hours import EPOCH, HOUR, Span, is_in
from pulljobs.spark.rollups.sketches import KLL, TRACKED_KEYS, quantiles

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

LONGEST_SAMPLE: Final = 2_000
LONGEST_SHAPE: Final = 500
SHAPES: Final = (
    (r"'[^']*'|\"[^\"]*\"", "'?'"),
    (r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b", "#"),
    (r"\b0x[0-9a-fA-F]+\b|\b(?=\w*[0-9])\w{12,}\b", "#"),
    (r"[0-9]+([.,:][0-9]+)*", "#"),
    (r"\s+", " "),
)
"""What differs between two errors that are the same: quoted names, ids, numbers."""

FIRST_DEATHS: Final = """
SELECT job_id, min(id) AS id
FROM {deaths}
WHERE state = 'DEAD'
GROUP BY job_id
"""
SETTLEMENTS: Final = """
SELECT
    consumer_id,
    unix_seconds(settled_at) div 3600 AS hour,
    node_id,
    job_id,
    unix_micros(settled_at) AS settled_at,
    state = 'DELIVERED' AS is_delivered,
    retry_count,
    deliveries,
    first_death.id < settlement.id AS is_again,
    (unix_micros(settled_at) - unix_micros(claimed_at)) / 1e6D AS run,
    (unix_micros(settled_at) - unix_micros(created_at)) / 1e6D AS total,
    CASE
        WHEN deliveries = 1 AND retry_count = 0 AND (first_death.id < settlement.id) IS NOT TRUE
            THEN (unix_micros(claimed_at) - unix_micros(created_at)) / 1e6D
    END AS wait
FROM {archive} AS settlement
LEFT JOIN {first_deaths} AS first_death USING (job_id)
"""
BY_NODE: Final = f"""
SELECT
    consumer_id,
    hour,
    node_id,
    count(*) AS settled,
    count_if(is_delivered) AS delivered,
    sum(retry_count) AS retries,
    sum(greatest(deliveries - 1, 0)) AS redeliveries,
    count_if(deliveries > 1) AS duplicates,
    count_if(is_again) AS settled_again,
    coalesce(sum(run), 0D) AS run_seconds,
    min(settled_at) AS first_settled_at,
    max(settled_at) AS last_settled_at,
    max(IF(run IS NULL, NULL, struct(run, job_id))) AS slowest,
    kll_sketch_agg_double(wait, {KLL}) AS wait,
    kll_sketch_agg_double(run, {KLL}) AS run,
    kll_sketch_agg_double(total, {KLL}) AS total
FROM {{settlements}}
GROUP BY consumer_id, hour, node_id
"""
BY_CONSUMER: Final = f"""
SELECT *, {quantiles("wait")}, {quantiles("run")}, {quantiles("total")}
FROM (
    SELECT
        consumer_id,
        hour,
        sum(settled) AS settled,
        sum(delivered) AS delivered,
        sum(retries) AS retries,
        sum(redeliveries) AS redeliveries,
        sum(duplicates) AS duplicates,
        sum(settled_again) AS settled_again,
        sum(run_seconds) AS run_seconds,
        min(first_settled_at) AS first_settled_at,
        max(last_settled_at) AS last_settled_at,
        max(slowest) AS slowest,
        kll_merge_agg_double(wait, {KLL}) AS wait,
        kll_merge_agg_double(run, {KLL}) AS run,
        kll_merge_agg_double(total, {KLL}) AS total,
        collect_list(struct(node_id, settled, settled - delivered AS dead, run_seconds)) AS nodes
    FROM {{by_node}}
    GROUP BY consumer_id, hour
)
"""
ERRORS: Final = f"""
SELECT *
FROM (
    SELECT
        *,
        row_number() OVER (PARTITION BY consumer_id, hour ORDER BY jobs DESC, fingerprint) AS place,
        row_number() OVER (
            PARTITION BY consumer_id, hour, reason ORDER BY jobs DESC, fingerprint
        ) AS place_in_reason,
        sum(jobs) OVER (PARTITION BY consumer_id, hour, reason) AS of_reason
    FROM (
        SELECT
            consumer_id,
            unix_seconds(settled_at) div 3600 AS hour,
            reason,
            md5(shape) AS fingerprint,
            count(*) AS jobs,
            min_by(left(error, {LONGEST_SAMPLE}), id) AS sample,
            min_by(job_id, id) AS sample_job
        FROM {{dead}}
        GROUP BY ALL
    )
)
WHERE place <= {KEPT_ERRORS} OR place_in_reason = 1
"""
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
BESIDE: Final = """
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
    """What is published on the channel meanwhile is published to the consumer."""

    consumer_id: int
    channel_id: int
    since: datetime
    until: datetime

    def covers(self, hour: datetime) -> bool:
        return self.since <= hour and hour + HOUR <= self.until

    def is_during(self, hour: datetime) -> bool:
        return self.since < hour + HOUR and hour < self.until


@dataclass(frozen=True, slots=True)
class Sources:
    """Rows of the lake that a count reads; more than those of the hours."""

    archive: "DataFrame"
    deaths: "DataFrame"
    """Settlements since the oldest of these jobs was created."""
    messages: "DataFrame"


def count(
    spark: "SparkSession",
    sources: Sources,
    spans: Sequence[Span],
    subscriptions: Sequence[Subscription],
) -> Rows:
    """Every consumer and hour that something was settled in, or published to."""
    rows: Rows = defaultdict(Counts)
    archive = sources.archive.where(is_in("settled_at", spans))
    for row in _settled(spark, archive, sources.deaths):
        _take_settled(rows[_key(row)], row)
    for row in _errors(spark, archive):
        _take_error(rows[_key(row)], row)
    messages = sources.messages.where(is_in("published_at", spans))
    _take_published(spark, rows, messages, subscriptions)
    return dict(rows)


def _settled(spark: "SparkSession", archive: "DataFrame", deaths: "DataFrame") -> "Iterator[Row]":
    first_deaths = spark.sql(FIRST_DEATHS, deaths=deaths)
    settlements = spark.sql(SETTLEMENTS, archive=archive, first_deaths=first_deaths)
    by_node = spark.sql(BY_NODE, settlements=settlements)
    return spark.sql(BY_CONSUMER, by_node=by_node).toLocalIterator()


def _take_settled(counts: Counts, row: "Row") -> None:
    counts.delivered, counts.dead = row.delivered, row.settled - row.delivered
    counts.retries, counts.redeliveries = row.retries, row.redeliveries
    counts.duplicates, counts.settled_again = row.duplicates, row.settled_again
    counts.run_seconds = row.run_seconds
    counts.first_settled_at = EPOCH + timedelta(microseconds=row.first_settled_at)
    counts.last_settled_at = EPOCH + timedelta(microseconds=row.last_settled_at)
    counts.slowest = row.slowest and (row.slowest.run, row.slowest.job_id)
    counts.nodes = {
        node.node_id: Cost(node.settled, node.dead, node.run_seconds) for node in row.nodes
    }
    counts.sketches = Sketches(bytes(row.wait), bytes(row.run), bytes(row.total))
    counts.sketches.quantiles = {
        "wait": row.wait_at, "run": row.run_at, "total": row.total_at
    }  # fmt: skip


def _errors(spark: "SparkSession", archive: "DataFrame") -> "Iterator[Row]":
    from pyspark.sql import functions as F

    line = F.substring_index(F.trim(F.coalesce("error", F.lit(""))), "\n", 1)
    dead = archive.where("state = 'DEAD'").withColumn(
        "shape", shape_of(F.left(line, F.lit(LONGEST_SHAPE)))
    )
    return spark.sql(ERRORS, dead=dead).toLocalIterator()


def shape_of(error: "Column") -> "Column":
    """The error without what differs from job to job."""
    from pyspark.sql import functions as F

    for pattern, replacement in SHAPES:
        error = F.regexp_replace(error, pattern, replacement)
    return error


def _take_error(counts: Counts, row: "Row") -> None:
    if row.place_in_reason == 1:
        counts.reasons[row.reason] = row.of_reason
    counts.errors[row.fingerprint, row.reason] = Error(row.jobs, row.sample or "", row.sample_job)


def _take_published(
    spark: "SparkSession",
    rows: Rows,
    messages: "DataFrame",
    subscriptions: Sequence[Subscription],
) -> None:
    """Each message for each consumer of its channel, of then."""
    edges: set[tuple[Any, ...]] = set()
    for row in spark.sql(PUBLISHED, messages=messages).toLocalIterator():
        hour = _hour(row)
        for one in subscriptions:
            if one.channel_id != row.channel_id or not one.is_during(hour):
                continue
            counts = rows[Key(one.consumer_id, hour)]
            if one.covers(hour):
                counts.published = row.messages
            else:
                edges.add((*one[:2], row.hour, *one[2:]))
            counts.sketches.keys = bytes(row.keys.sketch) if row.hot_keys else None
            counts.sketches.hot_keys = [(hot.item, hot.count) for hot in row.hot_keys or ()]
    if edges:
        given = spark.createDataFrame(
            sorted(edges),
            "consumer_id long, channel_id long, hour long, since timestamp, until timestamp",
        )
        for row in spark.sql(BESIDE, messages=messages, edges=given).toLocalIterator():
            rows[_key(row)].published = row.messages


def _key(row: "Row") -> Key:
    return Key(row.consumer_id, _hour(row))


def _hour(row: "Row") -> datetime:
    return EPOCH + int(row.hour) * HOUR
