"""Sketches that hours keep and days merge, in words of Spark's SQL."""

from typing import Final

from pulljobs.lake.models.rollups import QUANTILES

KLL: Final = 400
"""Size: a quantile is off by 0.7 % of all values at the most, in 99 of 100 sketches."""
TRACKED_KEYS: Final = 1024
RANKS: Final = ", ".join(f"{one / 100}D" for one in QUANTILES)


def quantiles(sketch: str) -> str:
    """`<sketch>_at`, an array as QUANTILES has them; NULL for an empty sketch."""
    return (
        f"IF(kll_sketch_get_n_double({sketch}) > 0,"
        f" kll_sketch_get_quantile_double({sketch}, array({RANKS})), NULL) AS {sketch}_at"
    )


def items(sketch: str) -> str:
    """What `approx_top_k_accumulate` made, from its bytes."""
    return (
        f"named_struct('sketch', {sketch}, 'maxItemsTracked', {TRACKED_KEYS},"
        " 'itemDataType', CAST(NULL AS STRING), 'itemDataTypeDDL', 'item string')"
    )
