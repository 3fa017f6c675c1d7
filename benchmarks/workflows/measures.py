"""Measures of a library: steps a second, latencies, and latencies next to sleeping runs."""

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from benchmarks.peers import databases
from benchmarks.peers.environments import Environment
from benchmarks.peers.processes import ServerCpu, Workers, order, working
from benchmarks.report import percentiles
from benchmarks.workflows.catalog import WorkflowPeer

STEPS: Final = 10
WARM_RUNS: Final = 10
LOOK_SECONDS: Final = 0.2
START_SECONDS: Final = 180.0
"""Longest time until the first effect, in which a busy machine starts the processes."""
STALLED_SECONDS: Final = 30.0
BATCH_SECONDS: Final = 3600.0
MICROSECONDS: Final = 1e6
WRITTEN: Final = (
    "SELECT count(*), count(*) / greatest(extract(epoch FROM max(written_at) - min(written_at)),"
    " 0.001) FROM effect"
)

Row = dict[str, Any]


class Measured:
    """Library to measure, in a database that is new for each measure."""

    def __init__(self, peer: WorkflowPeer, environment: Environment, row: Row) -> None:
        """`row` gets each figure when it is measured."""
        self._peer, self._environment, self._row = peer, environment, row
        self._database = databases.name_of(peer, "workflows")
        self._next_run = 0

    def measure(self, options: argparse.Namespace) -> None:
        """Measure everything that the library can do, and add the figures to the row."""
        with self.new_database():
            self._measure_steps(options.runs, options.processes)
        if self._peer.suspends and options.signals:
            self._measure_suspensions(options)
        if self._peer.batch and options.members:
            with self.new_database():
                self._measure_batch(options.members, options.processes)

    def _measure_suspensions(self, options: argparse.Namespace) -> None:
        with self.new_database():
            self._measure_latencies(options.signals, "")
            if self._peer.sleeps and options.sleeping:
                self._order("start", "sleeps", options.sleeping)
                databases.settle(self._database)
                self._measure_latencies(options.signals, " asleep")

    @contextmanager
    def new_database(self) -> Iterator[None]:
        """Create the database with the tables of the library. Drop it at the end."""
        databases.create(self._database)
        try:
            self._order("migrate")
            yield
        finally:
            databases.drop(self._database)

    def _measure_steps(self, runs: int, processes: int) -> None:
        """Add to the row the steps a second, and the CPU time of a step in workers and server."""
        self._order("start", "steps", runs)
        with self._working(processes) as workers, databases.connect(self._database) as session:
            times = StepTimes(session, workers)
            times.wait_for(1, START_SECONDS)
            times.begin()
            times.wait_for(runs * STEPS, STALLED_SECONDS)
            self._row |= times.end()

    def _measure_latencies(self, runs: int, suffix: str) -> None:
        with self._working(1) as workers:
            for kind in ("start", "signal"):
                words = ("latency", kind, self._next_run, WARM_RUNS + runs)
                self._next_run += WARM_RUNS + runs
                answer = self._order(*words, workers=workers)
                p50, p99 = percentiles(answer["seconds"][WARM_RUNS:])
                self._row[f"{kind}{suffix} p50 / p99 ms"] = f"{p50:.1f} / {p99:.1f}"

    def _measure_batch(self, members: int, processes: int) -> None:
        """Add to the row members/s, and the time from the last member to the callback."""
        self._order("start", "batch", members)
        deadline = time.monotonic() + BATCH_SECONDS
        with self._working(processes), databases.connect(self._database) as session:
            while (row := session.execute(self._peer.batch.encode()).fetchone()) is None:
                if time.monotonic() > deadline:
                    raise TimeoutError("the batch has not called back")
                time.sleep(LOOK_SECONDS)
        rate, late = (float(str(value)) for value in row)
        self._row |= {"members/s": rate, "callback after ms": late * 1000}

    def _order(self, *words: object, workers: Workers | None = None) -> dict[str, Any]:
        folder = workers.folder if workers else None
        return order(self._peer, self._environment, self._database, *words, folder=folder)

    @contextmanager
    def _working(self, processes: int) -> Iterator[Workers]:
        with working(self._peer, self._environment, self._database, processes=processes) as workers:
            yield workers


class StepTimes:
    """Counter of the effects of steps, and of the CPU time of workers and server for them."""

    def __init__(self, session: databases.Connection, workers: Workers) -> None:
        self._session, self._workers = session, workers
        self._server = ServerCpu(session)
        self._steps, self._cpu, self._server_cpu = 0, 0.0, 0.0

    def wait_for(self, wanted: int, patience: float) -> None:
        """Wait for `wanted` effects. Raise TimeoutError if none is added in `patience` seconds."""
        seen, moved_at = -1, time.monotonic()
        while (count := self._count()) < wanted:
            if count > seen:
                seen, moved_at = count, time.monotonic()
            if time.monotonic() - moved_at > patience:
                raise TimeoutError(f"{count} of {wanted} effects are there, and no more come")
            time.sleep(LOOK_SECONDS)

    def begin(self) -> None:
        """Begin to count steps and CPU time, after the processes have started."""
        self._steps, self._cpu = self._count(), self._workers.cpu()
        self._server_cpu = self._server.cpu() or 0.0

    def end(self) -> Row:
        """Return the steps a second of the whole run, and the CPU us of a step since `begin`."""
        [_count, rate] = self._session.execute(WRITTEN).fetchone() or (0, 0.0)
        steps = max(1, self._count() - self._steps) / MICROSECONDS
        return {
            "steps/s": float(str(rate)),
            "worker us/step": (self._workers.cpu() - self._cpu) / steps,
            "server us/step": ((self._server.cpu() or 0.0) - self._server_cpu) / steps,
        }

    def _count(self) -> int:
        [count] = self._session.execute("SELECT count(*) FROM effect").fetchone() or (0,)
        return int(str(count))
