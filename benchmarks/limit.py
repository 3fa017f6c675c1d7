"""Jobs a second of the worker with a handler that does nothing, against raw SQL."""

import os
import sys
from collections.abc import Sequence
from itertools import product
from statistics import median
from typing import Any, Final, Literal

from benchmarks.contenders import LOOP, WORKER, Run, run
from benchmarks.database import store_messages
from benchmarks.loops import make_tables
from benchmarks.publishing import publishing_rates
from benchmarks.report import Table, spread, tell

MOST: Final = 4
CONNECTIONS: Final = 2
"""Of a worker, busy at once: it claims by one and finishes by the other. A raw loop has one."""
WORDS: Final = {1: "one_process", 2: "two_processes", 3: "three_processes", 4: "four_processes"}

Runs = dict[tuple[str, int], list[Run]]


def as_many_as_cores() -> list[int]:
    """One process, two, and one a core up to some."""
    return sorted({1, 2, min(MOST, len(os.sched_getaffinity(0)))})


def limit(
    sizes: Sequence[int],
    designs: Sequence[str],
    *,
    processes: Sequence[int],
    batch: int,
    rounds: int,
    publishing: tuple[int, int],
    as_json: bool,
) -> None:
    make_tables()
    tables: dict[str, Table] = {"Publishing": publishing_rates(*publishing)}
    figures: dict[str, Any] = {}
    for jobs in sizes:
        store_messages(jobs)
        runs = _alternate(jobs, _turns(designs, processes), batch, rounds)
        tables[f"{jobs:,} jobs queued, batches of {batch}"] = _table(runs, designs)
        suffix = "" if jobs == sizes[0] else f"_at_{jobs}"
        for one in processes:
            name, loops = f"ratio_{WORDS.get(one, f'{one}_processes')}", CONNECTIONS * one
            figures[f"{name}{suffix}"] = _ratio(runs, designs, one, one)
            figures[f"{name}_by_connections{suffix}"] = _ratio(runs, designs, one, loops)
    tell(tables, figures, as_json=as_json)


def _turns(designs: Sequence[str], processes: Sequence[int]) -> list[tuple[str, int]]:
    loops = sorted({*processes, *(CONNECTIONS * one for one in processes)})
    return [*product(designs, loops), *product((LOOP, WORKER), processes)]


def _alternate(jobs: int, turns: Sequence[tuple[str, int]], batch: int, rounds: int) -> Runs:
    """Round after round, everybody in turn, so that what else the machine does meets all alike."""
    runs: Runs = {turn: [] for turn in turns}
    for round in range(rounds):
        for (name, processes), done in runs.items():
            done.append(run(name, jobs, processes, batch))
            rate = done[-1].jobs_per_second
            print(f"round {round + 1}: {name} x {processes}: {rate:,.0f} jobs/s", file=sys.stderr)
    return runs


def _table(runs: Runs, designs: Sequence[str]) -> Table:
    return [
        {
            "contender": name,
            "processes": processes,
            "jobs/s": _rate(done),
            "of fastest raw": _rate(done) / _fastest(runs, designs, processes),
            "by connections": _by_connections(runs, designs, name, processes),
            "least - most": " - ".join(f"{one:,.0f}" for one in _ends(done)),
            "claim p50 / p99 ms": spread([took for one in done for took in one.claims]),
            "WAL bytes a job": median(one.wal_bytes for one in done),
        }
        for (name, processes), done in runs.items()
    ]


def _by_connections(
    runs: Runs, designs: Sequence[str], name: str, processes: int
) -> float | Literal[""]:
    """The worker's rate by that of the fastest design with as many connections."""
    return _ratio(runs, designs, processes, CONNECTIONS * processes) if name == WORKER else ""


def _ratio(runs: Runs, designs: Sequence[str], processes: int, loops: int) -> float:
    return round(_rate(runs[WORKER, processes]) / _fastest(runs, designs, loops), 3)


def _fastest(runs: Runs, designs: Sequence[str], loops: int) -> float:
    return max(_rate(runs[design, loops]) for design in designs)


def _rate(done: Sequence[Run]) -> float:
    return median(one.jobs_per_second for one in done)


def _ends(done: Sequence[Run]) -> tuple[float, float]:
    rates = [one.jobs_per_second for one in done]
    return min(rates), max(rates)
