"""Merges of hours into days, and of days into months: sums here, sketches by Spark."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pulljobs.lake.rollups.counts import KEPT_KEYS, Counts, Key, Rows, Sketches
from pulljobs.lake.rollups.sketches import KLL, TRACKED_KEYS, items, quantiles
from pulljobs.lake.spark.frame_rows import each

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Groups = dict[Key, list[Counts]]
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


def merged(spark: "SparkSession", wholes: Sequence[Mapping[Key, Sequence[Counts]]]) -> list[Rows]:
    """Merge the parts of each row, all in one query, because each query of Spark is expensive."""
    made: list[Rows] = []
    members: list[list[Sketches]] = []
    for whole in wholes:
        made.append({key: _sum(parts) for key, parts in whole.items()})
        members += [[part.sketches for part in parts] for parts in whole.values()]
    places = [counts for rows in made for counts in rows.values()]
    for number, sketches in _merged(spark, members).items():
        places[number].sketches = sketches
    return made


def grouped(parts: Mapping[Key, Counts], begin: Callable[[datetime], datetime]) -> Groups:
    """Group parts by consumer and by the start of the period that they belong to."""
    groups: Groups = defaultdict(list)
    for key, counts in parts.items():
        groups[Key(key.consumer_id, begin(key.starts_at))].append(counts)
    return groups


def _sum(parts: Sequence[Counts]) -> Counts:
    counts = Counts()
    for part in parts:
        counts.add(part)
    return counts


def _merged(spark: "SparkSession", members: list[list[Sketches]]) -> dict[int, Sketches]:
    """Return the merged sketches by position in the list."""
    given = [
        {"place": place, "wait": part.wait, "run": part.run, "total": part.total, "keys": part.keys}
        for place, sketches in enumerate(members)
        for part in sketches
    ]
    parts = spark.createDataFrame(pa.Table.from_pylist(given, SCHEMA))
    merged_sketches = {}
    for row in each(spark.sql(MERGE, parts=parts)):
        merged_sketches[row.place] = sketches = Sketches()
        sketches.take_times(row)
        sketches.take_keys(row)
    return merged_sketches
