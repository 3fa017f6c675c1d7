"""Sketches of the rollups by Spark. `arrow_sketches` makes such sketches without Spark."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from pulljobs.lake.models.rollups import MEASURES, QUANTILES
from pulljobs.lake.rollups.counts import KEPT_KEYS, KLL, TRACKED_KEYS, Sketches
from pulljobs.lake.spark.frame_rows import each

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

RANKS: Final = ", ".join(f"{quantile / 100}D" for quantile in QUANTILES)


def quantiles(sketch: str) -> str:
    """Return SQL for the percentiles of a sketch column, as an array named `<sketch>_at`.

    It has the 50th, 95th and 99th percentile. The array is NULL if the sketch is empty.
    """
    return (
        f"IF(kll_sketch_get_n_double({sketch}) > 0,"
        f" kll_sketch_get_quantile_double({sketch}, array({RANKS})), NULL) AS {sketch}_at"
    )


def items(sketch: str) -> str:
    """Return SQL that turns the bytes of a sketch of keys into the form that Spark merges.

    That is the result of Spark's function `approx_top_k_accumulate`.
    """
    return (
        f"named_struct('sketch', {sketch}, 'maxItemsTracked', {TRACKED_KEYS},"
        " 'itemDataType', CAST(NULL AS STRING), 'itemDataTypeDDL', 'item string')"
    )


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


def merge(spark: "SparkSession", members: Sequence[Sequence[Sketches]]) -> dict[int, Sketches]:
    """Merge the sketches of each list in `members`. Return the results by index of the list."""
    given = [
        {"place": place, "wait": part.wait, "run": part.run, "total": part.total, "keys": part.keys}
        for place, sketches in enumerate(members)
        for part in sketches
    ]
    parts = spark.createDataFrame(pa.Table.from_pylist(given, SCHEMA))
    merged = {}
    for row in each(spark.sql(MERGE, parts=parts)):
        merged[row.place] = sketches = Sketches()
        take_times(sketches, row)
        take_keys(sketches, row)
    return merged


def take_times(sketches: Sketches, row: "Row") -> None:
    for measure in MEASURES:
        setattr(sketches, measure, bytes(row[measure]))
        sketches.quantiles[measure] = row[f"{measure}_at"]


def take_keys(sketches: Sketches, row: "Row") -> None:
    hot = row["hot_keys"] or ()
    sketches.keys = bytes(row["keys"]["sketch"]) if hot else None
    sketches.hot_keys = [(key["item"], key["count"]) for key in hot]
