"""Counts of settlements by Spark, in one pass. `arrow_settled` has the same counts."""

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from pulljobs.lake.rollups.counts import KLL, Cost, Counts, Key, Rows
from pulljobs.lake.rollups.hours import EPOCH, hour_at
from pulljobs.lake.rollups.spark_sketches import quantiles, take_times
from pulljobs.lake.spark.frame_rows import each

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

MOST_SENT: Final = 1_000_000
"""Number of first deaths that are broadcast to tasks, about 40 MB. Above it Spark sorts by job."""
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
    run_seconds AS run,
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


def count(
    spark: "SparkSession", archive: "DataFrame", deaths: "DataFrame", deaths_rows: int, rows: Rows
) -> None:
    """Count the settlements in `archive` by consumer and hour, into `rows`.

    `deaths` has all settlements since the oldest job in `archive` was created. They show which jobs
    had been DEAD before. `deaths_rows` is the number of rows of `deaths`.
    """
    for row in _settled(spark, archive, deaths, deaths_rows):
        _take(rows[Key(row.consumer_id, hour_at(row.hour))], row)


def _settled(
    spark: "SparkSession", archive: "DataFrame", deaths: "DataFrame", deaths_rows: int
) -> "Iterator[Row]":
    from pyspark.sql.functions import broadcast

    first_deaths = spark.sql(FIRST_DEATHS, deaths=deaths)
    if deaths_rows <= MOST_SENT or deaths.where("state = 'DEAD'").count() <= MOST_SENT:
        first_deaths = broadcast(first_deaths)
    settlements = spark.sql(SETTLEMENTS, archive=archive, first_deaths=first_deaths)
    by_node = spark.sql(BY_NODE, settlements=settlements)
    return each(spark.sql(BY_CONSUMER, by_node=by_node))


def _take(counts: Counts, row: "Row") -> None:
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
    take_times(counts.sketches, row)
