"""Sketches by the calling process, in the format in which Spark writes and reads its own."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Final

from datasketches import frequent_items_error_type, frequent_strings_sketch, kll_doubles_sketch

from pulljobs.lake.models.rollups import MEASURES, QUANTILES
from pulljobs.lake.rollups.counts import KEPT_KEYS, KLL, TRACKED_KEYS, Sketches, measured

RANKS: Final = [quantile / 100 for quantile in QUANTILES]
LOG_SLOTS: Final = TRACKED_KEYS.bit_length()
"""Logarithm of the places of a sketch of keys, of which three quarters may be used."""
NULLS: Final = bytes(8)
"""Number of NULL keys, which Spark writes behind a sketch."""


def begin_times() -> dict[str, kll_doubles_sketch]:
    return {measure: kll_doubles_sketch(KLL) for measure in MEASURES}


def begin_keys() -> frequent_strings_sketch:
    return frequent_strings_sketch(LOG_SLOTS)


def store_times(sketches: Sketches, times: Mapping[str, kll_doubles_sketch]) -> None:
    for measure, sketch in times.items():
        setattr(sketches, measure, sketch.serialize())
        is_empty = sketch.is_empty()
        sketches.quantiles[measure] = None if is_empty else sketch.get_quantiles(RANKS, True)


def store_keys(sketches: Sketches, keys: frequent_strings_sketch) -> None:
    hot = keys.get_frequent_items(frequent_items_error_type.NO_FALSE_POSITIVES)[:KEPT_KEYS]
    sketches.keys = keys.serialize() + NULLS if hot else None
    sketches.hot_keys = [(key, jobs) for key, jobs, _least, _most in hot]


def merge(members: Sequence[Sequence[Sketches]]) -> dict[int, Sketches]:
    """Merge the sketches of each list in `members`. Return the results by index of the list.

    Consumers of a channel have equal sketches of keys, which are merged once.
    """
    merge_keys = cache(_merge_keys)
    merged = {}
    for place, parts in enumerate(members):
        merged[place] = sketches = Sketches()
        store_times(sketches, _merge_times(parts))
        sketches.take_keys(merge_keys(tuple(part.keys for part in parts if part.keys)))
    return merged


def _merge_times(parts: Iterable[Sketches]) -> dict[str, kll_doubles_sketch]:
    times = begin_times()
    for part in parts:
        for measure, sketch in measured(part):
            if sketch is not None:
                times[measure].merge(kll_doubles_sketch.deserialize(sketch))
    return times


def _merge_keys(parts: Iterable[bytes]) -> Sketches:
    keys, merged = begin_keys(), Sketches()
    for part in parts:
        keys.merge(frequent_strings_sketch.deserialize(part[: -len(NULLS)]))
    store_keys(merged, keys)
    return merged
