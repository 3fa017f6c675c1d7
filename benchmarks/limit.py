"""Jobs a second of the worker with a handler that does nothing, against raw SQL."""

import sys
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

from benchmarks.contenders import LOOP, WORKER, Run, run
from benchmarks.database import store_messages
from benchmarks.loops import make_tables
from benchmarks.publishing import publishing_rates
from benchmarks.report import Table, spread, tell

PROCESSES: Final = (1, 2)

Runs = dict[tuple[str, int], list[Run]]


def limit(
    sizes: Sequence[int], designs: Sequence[str], *, batch: int, rounds: int, as_json: bool
) -> None:
    make_tables()
    tables: dict[str, Table] = {"Publishing": publishing_rates()}
    figures: dict[str, Any] = {}
    for jobs in sizes:
        store_messages(jobs)
        runs = _alternate(jobs, (*designs, LOOP, WORKER), batch, rounds)
        tables[f"{jobs:,} jobs queued, batches of {batch}"] = _table(runs, designs)
        figures |= _ratios(runs, designs, "" if jobs == sizes[0] else f"_at_{jobs}")
    tell(tables, figures, as_json=as_json)


def _alternate(jobs: int, contenders: Sequence[str], batch: int, rounds: int) -> Runs:
    """Round after round, everybody in turn, so that what else the machine does meets all alike."""
    runs: Runs = {(name, processes): [] for name in contenders for processes in PROCESSES}
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
            "least - most": " - ".join(f"{one:,.0f}" for one in _ends(done)),
            "claim p50 / p99 ms": spread([took for one in done for took in one.claims]),
            "WAL bytes a job": median(one.wal_bytes for one in done),
        }
        for (name, processes), done in runs.items()
    ]


def _ratios(runs: Runs, designs: Sequence[str], suffix: str) -> dict[str, float]:
    return {
        f"ratio_{word}{suffix}": round(
            _rate(runs[WORKER, processes]) / _fastest(runs, designs, processes), 3
        )
        for word, processes in zip(("one_process", "two_processes"), PROCESSES, strict=True)
    }


def _fastest(runs: Runs, designs: Sequence[str], processes: int) -> float:
    return max(_rate(runs[design, processes]) for design in designs)


def _rate(done: Sequence[Run]) -> float:
    return median(one.jobs_per_second for one in done)


def _ends(done: Sequence[Run]) -> tuple[float, float]:
    rates = [one.jobs_per_second for one in done]
    return min(rates), max(rates)
