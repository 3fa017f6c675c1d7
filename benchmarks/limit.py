"""Jobs a second of the worker with a handler that does nothing, compared with raw SQL."""

import argparse
import os
import sys
from collections.abc import Sequence
from itertools import product
from statistics import median
from typing import Any, Final, Literal

from benchmarks.contenders import LOOP, WORKER, Run, run_contender
from benchmarks.database import own_database, store_messages
from benchmarks.loops import DESIGNS, make_tables
from benchmarks.pinned import measure_pinned
from benchmarks.publishing import publishing_rates
from benchmarks.report import Table, print_report, spread
from benchmarks.trickle import measure_trickle

LIMIT_JOBS: Final = [100_000, 1_000_000]
PINNED_JOBS: Final = [300_000]
MOST_PROCESSES: Final = 4
CONNECTIONS: Final = 2
"""Connections that a worker keeps busy: it claims by one and finishes by the other.

A raw loop has one connection.
"""
WORDS: Final = {1: "one_process", 2: "two_processes", 3: "three_processes", 4: "four_processes"}

Runs = dict[tuple[str, int], list[Run]]
"""Runs by contender and number of processes."""


def run(options: argparse.Namespace) -> None:
    """Measure at full load, at a trickle of jobs or under a held snapshot, as the flags say."""
    designs = _designs(options.designs)
    with own_database():
        if options.trickle is not None:
            measure_trickle(options.trickle, slow=options.slow_publishers, as_json=options.json)
        elif options.pinned:
            for jobs in options.jobs or PINNED_JOBS:
                measure_pinned(jobs, designs, batch=options.batch, as_json=options.json)
        else:
            _measure(options, designs, options.processes or default_processes())


def default_processes() -> list[int]:
    """Return the numbers of processes to compare: 1, 2, and the number of cores up to 4."""
    return sorted({1, 2, min(MOST_PROCESSES, len(os.sched_getaffinity(0)))})


def _designs(wanted: list[str] | None) -> list[str]:
    if unknown := set(wanted or ()) - set(DESIGNS):
        raise SystemExit(f"No design {', '.join(unknown)}: choose from {', '.join(DESIGNS)}.")
    return wanted or list(DESIGNS)


def _measure(options: argparse.Namespace, designs: Sequence[str], processes: Sequence[int]) -> None:
    make_tables()
    rates = publishing_rates(options.publish_rounds, options.publishes)
    tables: dict[str, Table] = {"Publishing": rates}
    figures: dict[str, Any] = {}
    sizes: Sequence[int] = options.jobs or LIMIT_JOBS
    for jobs in sizes:
        store_messages(jobs)
        runs = _alternate(jobs, _turns(designs, processes), options.batch, options.rounds)
        tables[f"{jobs:,} jobs queued, batches of {options.batch}"] = _table(runs, designs)
        figures |= _ratios(runs, designs, processes, "" if jobs == sizes[0] else f"_at_{jobs}")
    print_report(tables, figures, as_json=options.json)


def _turns(designs: Sequence[str], processes: Sequence[int]) -> list[tuple[str, int]]:
    loops = sorted({*processes, *(CONNECTIONS * number for number in processes)})
    return [*product(designs, loops), *product((LOOP, WORKER), processes)]


def _alternate(jobs: int, turns: Sequence[tuple[str, int]], batch: int, rounds: int) -> Runs:
    """Run all contenders in turn, round after round, so that other load meets all of them."""
    runs: Runs = {turn: [] for turn in turns}
    for round in range(rounds):
        for (name, processes), done in runs.items():
            done.append(run_contender(name, jobs, processes, batch))
            rate = done[-1].jobs_per_second
            print(f"round {round + 1}: {name} x {processes}: {rate:,.0f} jobs/s", file=sys.stderr)
    return runs


def _ratios(
    runs: Runs, designs: Sequence[str], processes: Sequence[int], suffix: str
) -> dict[str, float]:
    figures = {}
    for number in processes:
        name, loops = f"ratio_{WORDS.get(number, f'{number}_processes')}", CONNECTIONS * number
        figures[f"{name}{suffix}"] = _ratio(runs, designs, number, number)
        figures[f"{name}_by_connections{suffix}"] = _ratio(runs, designs, number, loops)
    return figures


def _table(runs: Runs, designs: Sequence[str]) -> Table:
    return [
        {
            "contender": name,
            "processes": processes,
            "jobs/s": _rate(done),
            "of fastest raw": _rate(done) / _fastest(runs, designs, processes),
            "by connections": _by_connections(runs, designs, name, processes),
            "least - most": " - ".join(f"{rate:,.0f}" for rate in _extremes(done)),
            "claim p50 / p99 ms": spread([seconds for run in done for seconds in run.claims]),
            "WAL bytes a job": median(run.wal_bytes for run in done),
        }
        for (name, processes), done in runs.items()
    ]


def _by_connections(
    runs: Runs, designs: Sequence[str], name: str, processes: int
) -> float | Literal[""]:
    """Return the worker's rate divided by that of the fastest design with as many connections.

    Return an empty text for other contenders.
    """
    return _ratio(runs, designs, processes, CONNECTIONS * processes) if name == WORKER else ""


def _ratio(runs: Runs, designs: Sequence[str], processes: int, loops: int) -> float:
    return round(_rate(runs[WORKER, processes]) / _fastest(runs, designs, loops), 3)


def _fastest(runs: Runs, designs: Sequence[str], loops: int) -> float:
    return max(_rate(runs[design, loops]) for design in designs)


def _rate(done: Sequence[Run]) -> float:
    return median(run.jobs_per_second for run in done)


def _extremes(done: Sequence[Run]) -> tuple[float, float]:
    rates = [run.jobs_per_second for run in done]
    return min(rates), max(rates)
