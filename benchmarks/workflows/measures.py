"""Measures of a library: steps a second, latencies, and latencies next to sleeping runs."""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.peers import databases
from benchmarks.peers.environments import Environment
from benchmarks.peers.processes import Workers, order, working
from benchmarks.report import percentiles
from benchmarks.workflows.catalog import WorkflowPeer

STEPS: Final = 10
WARM_RUNS: Final = 10
LOOK_SECONDS: Final = 0.05
STALLED_SECONDS: Final = 30.0
WRITTEN: Final = (
    "SELECT count(*), count(*) / greatest(extract(epoch FROM max(written_at) - min(written_at)),"
    " 0.001) FROM effect"
)

Row = dict[str, Any]


class Measured:
    """One library with its environment and a database that is created for a measure."""

    def __init__(self, peer: WorkflowPeer, environment: Environment) -> None:
        self._peer, self._environment = peer, environment
        self._database = databases.name_of(peer, "workflows")
        self._next_run = 0

    def measure(self, options: argparse.Namespace) -> Row:
        """Return the figures of all measures that the library can do."""
        row: Row = {"peer": self._peer.name}
        with self.new_database():
            row["steps/s"] = self._measure_steps(options.runs, options.processes)
        if self._peer.suspends and options.signals:
            row |= self._measure_suspensions(options)
        if self._peer.batch and options.members:
            with self.new_database():
                row |= self._measure_batch(options.members, options.processes)
        return row

    def _measure_suspensions(self, options: argparse.Namespace) -> Row:
        with self.new_database():
            row = self._measure_latencies(options.signals, "")
            if self._peer.sleeps and options.sleeping:
                self._order("start", "sleeps", options.sleeping)
                databases.settle(self._database)
                row |= self._measure_latencies(options.signals, " asleep")
        return row

    @contextmanager
    def new_database(self) -> Iterator[None]:
        """Create the database with the tables of the library. Drop it at the end."""
        databases.create(self._database)
        try:
            self._order("migrate")
            yield
        finally:
            databases.drop(self._database)

    def _measure_steps(self, runs: int, processes: int) -> float:
        self._order("start", "steps", runs)
        with self._working(processes):
            self._wait_for_effects(runs * STEPS)
        with databases.connect(self._database) as session:
            [_count, rate] = session.execute(WRITTEN).fetchone() or (0, 0.0)
        return float(str(rate))

    def _measure_latencies(self, runs: int, suffix: str) -> Row:
        row: Row = {}
        with self._working(1) as workers:
            for kind in ("start", "signal"):
                words = ("latency", kind, self._next_run, WARM_RUNS + runs)
                self._next_run += WARM_RUNS + runs
                answer = self._order(*words, workers=workers)
                p50, p99 = percentiles(answer["seconds"][WARM_RUNS:])
                row[f"{kind}{suffix} p50 / p99 ms"] = f"{p50:.1f} / {p99:.1f}"
        return row

    def _measure_batch(self, members: int, processes: int) -> Row:
        """Return the members settled a second, and the time from the last one to the callback."""
        self._order("start", "batch", members)
        with self._working(processes), databases.connect(self._database) as session:
            while (row := session.execute(self._peer.batch.encode()).fetchone()) is None:
                time.sleep(LOOK_SECONDS)
        rate, late = (float(str(value)) for value in row)
        return {"members/s": rate, "callback after ms": late * 1000}

    def _wait_for_effects(self, wanted: int) -> None:
        seen, moved_at = -1, time.monotonic()
        with databases.connect(self._database) as session:
            while (count := _count_effects(session)) < wanted:
                if count > seen:
                    seen, moved_at = count, time.monotonic()
                if time.monotonic() - moved_at > STALLED_SECONDS:
                    raise TimeoutError(f"{count} of {wanted} effects are there, and no more come")
                time.sleep(LOOK_SECONDS)

    def _order(self, *words: object, workers: Workers | None = None) -> dict[str, Any]:
        folder = workers.folder if workers else None
        return order(self._peer, self._environment, self._database, *words, folder=folder)

    @contextmanager
    def _working(self, processes: int) -> Iterator[Workers]:
        with working(self._peer, self._environment, self._database, processes=processes) as workers:
            yield workers


def _count_effects(session: databases.Connection) -> int:
    [count] = session.execute("SELECT count(*) FROM effect").fetchone() or (0,)
    return int(str(count))
