"""Expressions of Spark's SQL for sketches, which hours keep and days merge."""

from typing import Final

from pulljobs.lake.models.rollups import QUANTILES

KLL: Final = 400
"""Size: in 99 of 100 sketches the rank error of a quantile is at most 0.7 %."""
TRACKED_KEYS: Final = 1024
RANKS: Final = ", ".join(f"{quantile / 100}D" for quantile in QUANTILES)


def quantiles(sketch: str) -> str:
    """Return a column `<sketch>_at`, an array in the order of QUANTILES, or NULL if empty."""
    return (
        f"IF(kll_sketch_get_n_double({sketch}) > 0,"
        f" kll_sketch_get_quantile_double({sketch}, array({RANKS})), NULL) AS {sketch}_at"
    )


def items(sketch: str) -> str:
    """Return the state of `approx_top_k_accumulate`, restored from its bytes."""
    return (
        f"named_struct('sketch', {sketch}, 'maxItemsTracked', {TRACKED_KEYS},"
        " 'itemDataType', CAST(NULL AS STRING), 'itemDataTypeDDL', 'item string')"
    )
