"""Counts of settlements by the calling process. `spark_settled` has the same counts."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from pulljobs.lake.models.rollups import MEASURES
from pulljobs.lake.rollups import arrow_sketches
from pulljobs.lake.rollups.counts import ADDED, Cost, Counts, Key, Rows
from pulljobs.lake.rollups.hours import EPOCH, hour_at

SUMMED: Final = tuple(name for name in ADDED if name != "published")
LISTED: Final = ("job_id", *MEASURES)
GROUPED: Final = ["consumer_id", "hour", "node_id"]
BY_NODE: Final = [
    *((name, "sum") for name in SUMMED),
    ("settled_at", "min"),
    ("settled_at", "max"),
    *((name, "list") for name in LISTED),
]
LIST_COLUMNS: Final = [f"{name}_list" for name in LISTED]
"""Columns that stay in Arrow, because Python objects for all rows would take most of the time."""
DEATHS: Final = pa.schema([("job_id", pa.int64()), ("id", pa.int64())])
MICROSECONDS: Final = 1e6


class SettlementTally:
    """Counter of settlements, which are added batch by batch."""

    def __init__(self, first_deaths: pa.Table, rows: Rows) -> None:
        self._first_deaths, self._rows = first_deaths, rows
        self._times: dict[Key, dict[str, Any]] = defaultdict(arrow_sketches.begin_times)

    def add(self, settlements: pa.Table) -> None:
        grouped = _columns(settlements, self._first_deaths).group_by(GROUPED, use_threads=False)
        groups = grouped.aggregate(BY_NODE)
        for number, group in enumerate(groups.drop_columns(LIST_COLUMNS).to_pylist()):
            lists = {name: groups[f"{name}_list"][number].values for name in LISTED}
            key = Key(group["consumer_id"], hour_at(group["hour"]))
            self._rows[key].add(_counts(group, lists))
            for measure, sketch in self._times[key].items():
                known = lists[measure].drop_null()
                sketch.update(known.to_numpy(zero_copy_only=False, writable=True))

    def end(self) -> None:
        """Store the sketches of the times, after the last batch."""
        for key, times in self._times.items():
            arrow_sketches.store_times(self._rows[key].sketches, times)


def find_first_deaths(settlements: Iterable[pa.RecordBatch]) -> pa.Table:
    """Return each dead job's `job_id`, and as `id_min` the id of its first settlement as DEAD."""
    deaths = [_select_deaths(batch) for batch in settlements]
    jobs = pa.Table.from_batches(deaths, DEATHS).group_by("job_id")
    return jobs.aggregate([("id", "min")]).combine_chunks()


def _select_deaths(batch: pa.RecordBatch) -> pa.RecordBatch:
    dead = batch.filter(pc.equal(batch["state"], "DEAD"))
    return pa.RecordBatch.from_arrays([dead["job_id"], dead["id"]], schema=DEATHS)


def _columns(settlements: pa.Table, first_deaths: pa.Table) -> pa.Table:
    death = pc.index_in(settlements["job_id"], value_set=first_deaths["job_id"])
    is_again = pc.less(first_deaths["id_min"].take(death), settlements["id"]).fill_null(False)
    grouped = {name: settlements[name] for name in (*GROUPED, "job_id")}
    counted, timed = _count_columns(settlements, is_again), _time_columns(settlements, is_again)
    return pa.table(grouped | counted | timed)


def _count_columns(settlements: pa.Table, is_again: pa.Array) -> dict[str, pa.Array]:
    """Return the columns whose sums have names of `Counts`."""
    is_delivered = pc.equal(settlements["state"], "DELIVERED")
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
    """Return the time of settlement in microseconds, and wait, run and total in seconds.

    The wait is NULL except for a job that its first delivery settled.
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


def _counts(group: Mapping[str, Any], lists: Mapping[str, pa.Array]) -> Counts:
    sums: dict[str, Any] = {name: group[f"{name}_sum"] or 0 for name in SUMMED}
    cost = Cost(sums["delivered"] + sums["dead"], sums["dead"], sums["run_seconds"])
    return Counts(
        **sums,
        first_settled_at=EPOCH + timedelta(microseconds=group["settled_at_min"]),
        last_settled_at=EPOCH + timedelta(microseconds=group["settled_at_max"]),
        slowest=_find_slowest(lists["run"], lists["job_id"]),
        nodes={group["node_id"]: cost},
    )


def _find_slowest(runs: pa.Array, job_ids: pa.Array) -> tuple[float, int] | None:
    """Return the longest run with its job, the newest of jobs that took as long."""
    longest = pc.max(runs)
    if not longest.is_valid:
        return None
    jobs: int = pc.max(job_ids.filter(pc.equal(runs, longest))).as_py()
    return longest.as_py(), jobs
