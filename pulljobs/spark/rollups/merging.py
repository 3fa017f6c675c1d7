"""Hours into days, and days into months: sums here, sketches by Spark."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pulljobs.spark.rollups.counts import KEPT_KEYS, Counts, Key, Rows, Sketches
from pulljobs.spark.rollups.sketches import KLL, TRACKED_KEYS, items, quantiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA: Final = pa.schema(
    [
        ("place", pa.int64()),
        ("wait", pa.binary()),
        ("run", pa.binary()),
        ("total", pa.binary()),
        ("keys", pa.binary()),
    ]
)
MERGE: Final = f"""
SELECT
    *,
    {quantiles("wait")},
    {quantiles("run")},
    {quantiles("total")},
    approx_top_k_estimate(keys, {KEPT_KEYS}) AS hot_keys
FROM (
    SELECT
        place,
        kll_merge_agg_double(wait, {KLL}) AS wait,
        kll_merge_agg_double(run, {KLL}) AS run,
        kll_merge_agg_double(total, {KLL}) AS total,
        approx_top_k_combine({items("keys")}, {TRACKED_KEYS})
            FILTER (WHERE keys IS NOT NULL) AS keys
    FROM {{parts}}
    GROUP BY place
)
"""


def merged(
    spark: "SparkSession", parts: Mapping[Key, Counts], whole: Callable[[datetime], datetime]
) -> Rows:
    """A row for each consumer and each begin that `whole` gives those of the parts."""
    rows: Rows = defaultdict(Counts)
    members: dict[Key, list[Sketches]] = defaultdict(list)
    for key, counts in parts.items():
        place = Key(key.consumer_id, whole(key.starts_at))
        rows[place].add(counts)
        members[place].append(counts.sketches)
    places = list(rows)
    for number, sketches in _merged(spark, [members[place] for place in places]).items():
        rows[places[number]].sketches = sketches
    return dict(rows)


def _merged(spark: "SparkSession", members: list[list[Sketches]]) -> dict[int, Sketches]:
    """By the place in the list."""
    given = [
        {"place": place, "wait": one.wait, "run": one.run, "total": one.total, "keys": one.keys}
        for place, sketches in enumerate(members)
        for one in sketches
    ]
    parts = spark.createDataFrame(pa.Table.from_pylist(given, SCHEMA))
    found = {}
    for row in spark.sql(MERGE, parts=parts).toLocalIterator():
        keys = bytes(row["keys"].sketch) if row.hot_keys else None
        sketches = Sketches(bytes(row.wait), bytes(row.run), bytes(row.total), keys)
        sketches.quantiles = {"wait": row.wait_at, "run": row.run_at, "total": row.total_at}
        sketches.hot_keys = [(hot["item"], hot["count"]) for hot in row.hot_keys or ()]
        found[row.place] = sketches
    return found
