"""Counts of messages by the calling process. `spark_published` has the same counts."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from pulljobs.lake.rollups import arrow_sketches
from pulljobs.lake.rollups.counts import Key, Sketches
from pulljobs.lake.rollups.published import ChannelHour, Edge

PLACE: Final = ["channel_id", "hour"]


def count_channels(messages: Iterable[pa.Table]) -> Iterator[ChannelHour]:
    """Yield the number of messages by channel and hour, with a sketch of their keys."""
    counted: Counter[tuple[int, int]] = Counter()
    keys: dict[tuple[int, int], Any] = defaultdict(arrow_sketches.begin_keys)
    for batch in messages:
        groups = batch.group_by([*PLACE, "key"]).aggregate([([], "count_all")])
        for channel_id, hour, key, rows in zip(
            *map(pa.ChunkedArray.to_pylist, groups), strict=True
        ):
            counted[channel_id, hour] += rows
            if key is not None:
                keys[channel_id, hour].update(key, rows)
    for place, rows in counted.items():
        sketches = Sketches()
        arrow_sketches.store_keys(sketches, keys[place])
        yield ChannelHour(*place, rows, sketches)


def count_edges(messages: Iterable[pa.Table], edges: Collection[Edge]) -> Iterator[tuple[Key, int]]:
    times = _list_times(messages, {(edge.channel_id, edge.hour) for edge in edges})
    for edge in edges:
        ordered = times[edge.channel_id, edge.hour]
        yield edge.key, bisect_left(ordered, edge.until) - bisect_left(ordered, edge.since)


def _list_times(
    messages: Iterable[pa.Table], places: Collection[tuple[int, int]]
) -> dict[tuple[int, int], list[datetime]]:
    """Return the sorted publish times of messages, for these pairs of channel id and hour."""
    times: dict[tuple[int, int], list[datetime]] = {place: [] for place in places}
    for batch in messages:
        groups = batch.group_by(PLACE).aggregate([("published_at", "list")])
        for group in groups.to_pylist():
            if (place := (group["channel_id"], group["hour"])) in times:
                times[place] += group["published_at_list"]
    return {place: sorted(ordered) for place, ordered in times.items()}
