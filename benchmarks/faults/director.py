"""One run: a server, processes, faults, and what is left of it all."""

import random
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.faults import history, tables
from benchmarks.faults.checker import Case
from benchmarks.faults.kinds import KINDS, Stage, mend
from benchmarks.faults.plan import Plan
from benchmarks.faults.processes import Cast
from benchmarks.faults.progress import Progress
from benchmarks.faults.schedule import STALLED, in_turn, moments
from benchmarks.faults.server import Server, server, wait_for
from benchmarks.faults.verifying import Verifier

LOOK: Final = 0.1
STOP_SECONDS: Final = 60.0
UNFINISHED: Final = "SELECT count(*) FROM pulljobs_job WHERE state <> 'DEAD'"


@dataclass
class Outcome:
    """What is judged: the case, and what the director saw itself."""

    case: Case
    stage: Stage
    complaints: list[str]
    injected: list[str] = field(default_factory=list)


def run(plan: Plan, state: Path | None = None, keep: Path | None = None) -> Outcome:
    """Raise what keeps it from running at all; all else is in the outcome.

    The server stays in `state` and what the processes wrote in `keep`, if they are given.
    """
    random.seed(plan.seed)
    with server(state) as own, tempfile.TemporaryDirectory(prefix="pulljobs-faults-") as temporary:
        if keep is not None:
            keep.mkdir()
        return Director(plan, own, keep or Path(temporary)).run()


class Director:
    def __init__(self, plan: Plan, own: Server, directory: Path) -> None:
        self.plan, self.server = plan, own
        self.cast = Cast(
            directory,
            own.directory,
            lease_duration=plan.lease_duration,
            broken=plan.broken,
            older=plan.older,
        )
        self.stage = Stage(own, self.cast, plan)
        self.progress = Progress(self.cast.history)
        self.complaints: list[str] = []
        self.injected: list[str] = []

    def run(self) -> Outcome:
        try:
            self.begin()
            with self.verified():
                self.break_things()
                self.wait_for_the_rest()
                self.end_processes()
            with self.server.connect() as connection:
                found = tables.read(connection)
        finally:
            self.cast.end()
        lines = [*history.read(self.cast.history), *self.cast.lines]
        case = Case(sorted(lines, key=lambda line: line.at), found, self.plan.concurrency)
        return Outcome(case, self.stage, self.complaints, self.injected)

    @contextmanager
    def verified(self) -> Iterator[None]:
        """Where pulljobs itself is broken, that is for the checker alone to see."""
        if self.plan.broken:
            yield
            return
        with Verifier(self.cast) as verifier:
            yield
        if not verifier.look():
            self.complaints.append("verify could not look, though nothing was broken any more")
        self.complaints += verifier.complaints

    def begin(self) -> None:
        self.cast.prepare(exclusive=bool(self.plan.keys))
        if "cut" in self.plan.faults:
            self.stage.proxy = self.cast.proxy(self.server.directory)
        for _worker in range(self.plan.workers):
            self.cast.worker(*self.plan.worker_flags)
        for _claimer in range(self.plan.claimers):
            self.cast.claimer()
        if self.plan.older:  # else the one that is there first may do it all
            wait_for(self.workers_are_up, "the workers' start")
        releases = (True, False) if self.plan.older else (False,)
        jobs = self.plan.jobs and self.plan.jobs // len(releases)
        for older in releases:
            self.cast.publisher(
                older=older, jobs=jobs, seconds=self.plan.seconds, keys=self.plan.keys
            )

    def workers_are_up(self) -> bool:
        with self.server.connect() as connection:
            [up] = connection.execute("SELECT count(*) FROM pulljobs_node").fetchone() or (0,)
        return bool(up >= self.plan.workers)

    def break_things(self) -> None:
        names, breaking = in_turn(self.plan.faults), []
        for _moment in moments(self.plan, self.progress, lambda: not self.cast.of("publisher")):
            if (name := next(names, None)) is not None:
                breaking.append(threading.Thread(target=self.break_one, args=(name,)))
                breaking[-1].start()
        for thread in breaking:
            thread.join()
        mend(self.stage)

    def break_one(self, name: str) -> None:
        """Faults may meet: what one of them finds broken already ends it early."""
        self.injected.append(name)
        print(f"{time.monotonic():.1f} {name}", file=sys.stderr)
        try:
            KINDS[name](self.stage)
        except psycopg.Error as error:
            print(f"{name} met another fault: {error}".strip(), file=sys.stderr)
        except Exception as error:
            self.complaints.append(f"the fault {name} itself failed: {error!r}")

    def wait_for_the_rest(self) -> None:
        """Until all is published and settled, or nothing has moved for long."""
        self.cast.enough.touch()
        self.progress.moved_at = time.monotonic()
        while (left := self.left()) and self.progress.stalled_for < STALLED:
            self.progress.look()
            time.sleep(LOOK)
        if left:
            self.complaints.append(
                f"{left} jobs were still not settled when nothing moved any more"
            )

    def left(self) -> int:
        """Jobs to be settled; some, at any rate, while somebody publishes."""
        if self.cast.of("publisher"):
            return 1
        with self.server.connect() as connection:
            row = connection.execute(UNFINISHED).fetchone()
        return int(row[0]) if row else 0

    def end_processes(self) -> None:
        """In order; whoever ended before without having been told is a complaint."""
        self.cast.over.touch()
        self.complaints += self.cast.deserters()
        self.complaints += self.cast.idle_releases()
        for worker in self.cast.of("worker"):
            code = worker.end(STOP_SECONDS)
            if code != 0:
                self.complaints.append(f"a worker that was told to stop ended with {code}")
        wait_for(lambda: not self.cast.of("claimer"), "the claimers' end")
