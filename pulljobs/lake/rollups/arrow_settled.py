"""Counts of settlements by the calling process. `spark_settled` has the same counts."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pulljobs.lake.models.rollups import MEASURES
from pulljobs.lake.rollups import arrow_sketches
from pulljobs.lake.rollups.counts import ADDED, Cost, Counts, Key, Rows
from pulljobs.lake.rollups.hours import EPOCH, hour_at

SUMMED: Final = tuple(name for name in ADDED if name != "published")
SPLIT: Final = ("job_id", *MEASURES)
PLACE: Final = ["consumer_id", "hour"]
GROUPED: Final = [*PLACE, "node_id"]
BY_NODE: Final = [
    *((name, "sum") for name in SUMMED),
    ("settled_at", "min"),
    ("settled_at", "max"),
]
DEATHS: Final = pa.schema([("job_id", pa.int64()), ("id", pa.int64())])
MICROSECONDS: Final = 1e6
Values = dict[str, np.ndarray]
"""Values of settlements by column. NULL is NaN."""


class SettlementTally:
    """Counter of settlements, which are added in Arrow batches."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._times: dict[Key, dict[str, Any]] = defaultdict(arrow_sketches.begin_times)

    def add(self, columns: pa.Table) -> None:
        """Add settlements, in the columns that `choose_columns` returns."""
        by_node = columns.group_by(GROUPED, use_threads=False).aggregate(BY_NODE)
        for group in by_node.to_pylist():
            self._rows[_key_of(group)].add(_counts(group))
        for key, values in _split(columns):
            self._add_times(key, values)

    def _add_times(self, key: Key, values: Values) -> None:
        """Add the wait, run and total times of settlements of one consumer and hour.

        They are sorted first, because a sketch takes sorted values in half of the time.
        """
        counts = self._rows[key]
        counts.slowest = max(filter(None, (counts.slowest, _find_slowest(values))), default=None)
        for measure, sketch in self._times[key].items():
            times = values[measure]
            sketch.update(np.sort(times[~np.isnan(times)]))

    def end(self) -> None:
        """Put the sketches of wait, run and total times into the counts of each consumer and hour.

        The caller has added all batches before.
        """
        for key, times in self._times.items():
            arrow_sketches.store_times(self._rows[key].sketches, times)


def find_first_deaths(settlements: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return each dead job's `job_id`, and as `id_min` the id of its first settlement as DEAD."""
    deaths = [_select_deaths(batch) for batch in settlements]
    jobs = pa.Table.from_batches(deaths, DEATHS).group_by("job_id")
    return jobs.aggregate([("id", "min")]).combine_chunks()


def _select_deaths(batch: pa.RecordBatch) -> pa.RecordBatch:
    dead = batch.select(DEATHS.names).filter(is_in_state(batch["state"], "DEAD"))
    return dead.cast(DEATHS)


def is_in_state(states: pa.Array, state: str) -> pa.Array:
    """Return a boolean array: true where the dictionary array `states` has this state."""
    return pc.equal(states.indices, pc.index(states.dictionary, state))


def choose_columns(settlements: pa.Table, first_deaths: pa.Table) -> pa.Table:
    """Return the columns of settlements that `SettlementTally.add` takes.

    `first_deaths` are those of `find_first_deaths`.
    """
    death = pc.index_in(settlements["job_id"], value_set=first_deaths["job_id"])
    is_again = pc.less(first_deaths["id_min"].take(death), settlements["id"]).fill_null(False)
    grouped = {name: settlements[name] for name in (*GROUPED, "job_id")}
    counted, timed = _count_columns(settlements, is_again), _time_columns(settlements, is_again)
    return pa.table(grouped | counted | timed)


def _count_columns(settlements: pa.Table, is_again: pa.Array) -> dict[str, pa.Array]:
    """Return the columns to sum up, by the names that the sums have in `Counts`.

    `is_again` is true for settlements of jobs that had been DEAD before.
    """
    is_delivered = is_in_state(settlements["state"].combine_chunks(), "DELIVERED")
    redeliveries = pc.max_element_wise(pc.subtract(settlements["deliveries"], 1), 0)
    return {
        "delivered": is_delivered,
        "dead": pc.invert(is_delivered),
        "retries": settlements["retry_count"],
        "redeliveries": redeliveries,
        "duplicates": pc.greater(redeliveries, 0),
        "settled_again": is_again,
        "run_seconds": settlements["run_seconds"],
    }


def _time_columns(settlements: pa.Table, is_again: pa.Array) -> dict[str, pa.Array]:
    """Return the time of settlement in microseconds, and wait, run and total times in seconds.

    The wait, from creation to claim, is NULL unless the first claim settled the job.
    """
    created, claimed, settled = (
        settlements[name].cast(pa.int64()) for name in ("created_at", "claimed_at", "settled_at")
    )
    is_first = pc.and_(_is_first_delivery(settlements), pc.invert(is_again))
    wait = pc.divide(pc.subtract(claimed, created), MICROSECONDS)
    return {
        "settled_at": settled,
        "wait": pc.if_else(is_first, wait, None),
        "run": settlements["run_seconds"],
        "total": pc.divide(pc.subtract(settled, created), MICROSECONDS),
    }


def _is_first_delivery(settlements: pa.Table) -> pa.Array:
    return pc.and_(pc.equal(settlements["deliveries"], 1), pc.equal(settlements["retry_count"], 0))


def _counts(group: Mapping[str, Any]) -> Counts:
    sums: dict[str, Any] = {name: group[f"{name}_sum"] or 0 for name in SUMMED}
    cost = Cost(sums["delivered"] + sums["dead"], sums["dead"], sums["run_seconds"])
    return Counts(
        **sums,
        first_settled_at=EPOCH + timedelta(microseconds=group["settled_at_min"]),
        last_settled_at=EPOCH + timedelta(microseconds=group["settled_at_max"]),
        nodes={group["node_id"]: cost},
    )


def _split(columns: pa.Table) -> Iterator[tuple[Key, Values]]:
    """Yield the values of each consumer and hour as NumPy arrays, by column.

    Arrow would need more time to aggregate them to lists.
    """
    values = {name: columns[name].to_numpy() for name in SPLIT}
    for rows in _split_rows(columns):
        first = {name: columns[name][rows[0]].as_py() for name in PLACE}
        yield _key_of(first), {name: column[rows] for name, column in values.items()}


def _split_rows(columns: pa.Table) -> list[np.ndarray]:
    """Return the indexes of the rows of each consumer and hour, one array for each."""
    consumers = columns["consumer_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    hours = columns["hour"].to_numpy()
    places = consumers * (np.ptp(hours) + 1) + (hours - hours.min())
    order = np.argsort(places.astype(np.min_scalar_type(places.max())), kind="stable")
    places = places[order]
    return np.split(order, np.flatnonzero(places[1:] != places[:-1]) + 1)


def _find_slowest(values: Values) -> tuple[float, int] | None:
    """Return the seconds of the longest run and its job id, or None if no run time is known.

    Of several jobs that ran as long, it is the newest.
    """
    runs = values["run"]
    if np.isnan(runs).all():
        return None
    longest = np.nanmax(runs)
    return float(longest), int(values["job_id"][runs == longest].max())


def _key_of(group: Mapping[str, Any]) -> Key:
    return Key(group["consumer_id"], hour_at(group["hour"]))
