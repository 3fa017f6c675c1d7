"""Director of a run: it starts a server and processes, injects faults and collects the result."""

import json
import random
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

from benchmarks.faults import history, tables
from benchmarks.faults.checker import Case
from benchmarks.faults.claim_rates import ClaimRate, make_rate
from benchmarks.faults.key_limits import KeyLimits
from benchmarks.faults.kinds import KINDS, THROUGH_THE_PROXY, repair
from benchmarks.faults.limit_changes import LimitChanges
from benchmarks.faults.liveness import Bounds
from benchmarks.faults.plan import Plan
from benchmarks.faults.prober import Prober
from benchmarks.faults.processes import Process, Processes
from benchmarks.faults.progress import Progress
from benchmarks.faults.schedule import STALLED, fault_times, shuffle_forever
from benchmarks.faults.server import OwnServer, own_server, wait_for
from benchmarks.faults.spans import Span
from benchmarks.faults.targets import CLIENT_KINDS, Targets
from benchmarks.faults.verifier import Verifier

LOOK_SECONDS: Final = 0.1
RECOVERED_LEASES: Final = 2
"""Lease durations after a fault until claims use again what limits allow."""
CHANGED: Final = 1.0
"""Seconds after a change of limits until all processes know of it."""
STOP_SECONDS: Final = 60.0
LIVENESS_LEASES: Final = 4
"""Lease durations after which a loop counts as hung, in a run with one fault at a time."""
HEARTBEATS: Final = 3
"""Heartbeats in a lease duration, after which a worker without one is not ready."""
VERIFY: Final = 5.0
VERIFY_SELDOM: Final = 30.0
"""Seconds between two runs of `verify`, which take processor time from the processes under test."""
UNFINISHED: Final = "SELECT count(*) FROM pulljobs_job WHERE state <> 'DEAD'"


@dataclass
class RunResult:
    """Record of a run for the check of its promises, and complaints of the director itself."""

    case: Case
    targets: Targets
    complaints: list[str]
    injected: list[str] = field(default_factory=list)


def run(plan: Plan, state: Path | None = None, keep: Path | None = None) -> RunResult:
    """Run a plan and return the result.

    Raise only if the run cannot start or end. With `state` the server stays in that directory,
    with `keep` the histories and logs stay there.
    """
    with own_server(state) as own:
        return run_on(own, plan, keep)


def run_on(own: OwnServer, plan: Plan, keep: Path | None = None) -> RunResult:
    """Run a plan on a server whose database is empty."""
    random.seed(plan.seed)
    with tempfile.TemporaryDirectory(prefix="pulljobs-faults-") as temporary:
        if keep is not None:
            keep.mkdir()
        return Director(plan, own, keep or Path(temporary)).run()


def make_bounds(plan: Plan) -> Bounds | None:
    """Return the bounds on waits, or None for overlapping faults, which delay every job."""
    return Bounds(plan.lease_duration, ready=plan.lease_duration) if plan.rounds else None


def make_timing(plan: Plan) -> dict[str, str]:
    """Return environment variables for short heartbeats and time-outs, if faults do not overlap."""
    if not plan.rounds:
        return {}
    return {
        "FAULTS_LIVENESS": str(LIVENESS_LEASES * plan.lease_duration),
        "FAULTS_HEARTBEAT": str(plan.lease_duration / HEARTBEATS),
    }


class Director:
    """Director of one run of a plan."""

    def __init__(self, plan: Plan, own: OwnServer, directory: Path) -> None:
        self.plan, self.server = plan, own
        self.processes = Processes(
            directory,
            own.directory,
            lease_duration=plan.lease_duration,
            broken=plan.broken,
            older=plan.older,
            timing=make_timing(plan),
        )
        self.targets = Targets(own, self.processes, plan)
        self.progress = Progress(self.processes.history)
        self.complaints: list[str] = []
        self.injected: list[str] = []
        self.disturbed: list[Span] = []
        """Times of the monotonic clock in which a fault may have delayed claims."""
        self.changes = LimitChanges(plan, self.processes)
        self.replaced: list[str] = []

    def run(self) -> RunResult:
        """Run the plan to its end. End all processes whatever happens."""
        try:
            self.begin()
            with self.verified():
                with self.probed(), self.changes.made():
                    self.inject_faults()
                    self.wait_for_the_rest()
                self.end_processes()
            with self.server.connect() as connection:
                at_end = tables.read_tables(connection)
        finally:
            self.processes.end()
        return RunResult(self.make_case(at_end), self.targets, self.complaints, self.injected)

    def make_case(self, at_end: tables.Tables) -> Case:
        """Return the case for the checker, and write the director's own lines to a file."""
        rows = "\n".join(json.dumps(line) for line in self.processes.lines)
        (self.processes.directory / "director").write_text(rows)
        lines = [*history.read_history(self.processes.history), *self.processes.lines]
        return Case(
            sorted(lines, key=lambda line: line.at),
            at_end,
            threads=self.plan.concurrency,
            bounds=make_bounds(self.plan),
            replaced=self.replaced,
            clients=frozenset(
                process.pid for process in self.processes.started if process.role == "client"
            ),
            rate=self.make_rate(lines),
            in_flight=(self.plan.in_flight, self.plan.group),
            keys=KeyLimits(self.plan.is_exclusive, self.plan.slots, self.plan.fair),
            disturbed=self.find_disturbed(at_end.clock_offset),
            changes=self.changes.made_at,
        )

    def find_disturbed(self, clock_offset: float) -> list[Span] | None:
        """Return the spans, by the database's clock, in which claims may have been delayed.

        Return None if that is at all times, because of throttles or of bounds on jobs in flight.
        """
        if self.plan.throttle or self.plan.in_flight or self.plan.slots:
            return None
        faults = [Span(*(moment + clock_offset for moment in span)) for span in self.disturbed]
        changes = [Span(change.since, change.at + CHANGED) for change in self.changes.made_at]
        return faults + changes

    def make_rate(self, lines: Sequence[history.Line]) -> ClaimRate | None:
        """Return the rate of the plan, with the costs that the publishers chose."""
        plan = self.plan
        rate = make_rate(plan.claim_rate, window=plan.window, shared=plan.group)
        if rate is not None:
            rate = rate._replace(is_by_key=plan.by_key, changes=self.changes.made_at)
        if rate is None or plan.costs == 1:
            return rate
        published = (line for line in lines if line.event == history.PUBLISHED)
        return rate._replace(costs={line.job: int(line.outcome) for line in published})

    @contextmanager
    def verified(self) -> Iterator[None]:
        """Repeat `pulljobs verify` during the block, unless pulljobs is broken on purpose."""
        if self.plan.broken:
            yield
            return
        with Verifier(self.processes, VERIFY_SELDOM if self.plan.rounds else VERIFY) as verifier:
            yield
        if not verifier.verify():
            self.complaints.append("verify could not run, though no fault was active any more")
        self.complaints += verifier.complaints

    @contextmanager
    def probed(self) -> Iterator[None]:
        """Ask processes if they are ready during the block, if the plan has one fault at a time."""
        if not self.plan.rounds:
            yield
            return
        with Prober(self.with_health_port, self.processes.lines.append) as prober:
            yield
        self.complaints += prober.silent(self.with_health_port())

    def with_health_port(self) -> list[Process]:
        """Return the living workers and servers, which are the processes with a health port."""
        return [*self.processes.living("worker"), *self.processes.living("server")]

    def begin(self) -> None:
        """Start proxies, workers, raw claimers, HTTP clients and publishers."""
        self.processes.prepare(
            exclusive=self.plan.is_exclusive,
            group=self.plan.group,
            limits={
                "rate": self.plan.claim_rate,
                "rate_window": self.plan.window,
                "max_in_flight": self.plan.in_flight or None,
            },
            by_key={
                "max_in_flight_per_key": self.plan.slots or None,
                "fair_by_key": self.plan.fair,
                "rate_per_key": self.plan.by_key,
            },
            push=self.plan.push,
        )
        behind_a_proxy = bool(THROUGH_THE_PROXY & set(self.plan.faults))
        if behind_a_proxy:
            self.targets.proxies.append(self.processes.proxy(self.server.directory))
        for _worker in range(self.plan.workers):
            self.targets.start_worker()
        for _claimer in range(self.plan.claimers):
            self.targets.start_claimer()
        if self.plan.clients:
            self.targets.start_web_server(behind_a_proxy=behind_a_proxy)
        for number in range(self.plan.clients):
            self.targets.start_client(CLIENT_KINDS[number % len(CLIENT_KINDS)])
        if self.plan.older or self.plan.rounds:  # Otherwise the first worker may do all jobs.
            wait_for(self.workers_are_up, "the workers' start")
        self.start_publishers()

    def start_publishers(self) -> None:
        """Start a paced publisher if the plan has a rate, else a publisher for each release."""
        if self.plan.rate is not None:
            self.processes.paced_publisher(
                rate=self.plan.rate, seconds=self.plan.seconds, largest=self.plan.largest
            )
            return
        releases = (True, False) if self.plan.older else (False,)
        jobs = self.plan.jobs and self.plan.jobs // len(releases)
        for older in releases:
            self.processes.publisher(
                older=older,
                jobs=jobs,
                seconds=self.plan.seconds,
                keys=self.plan.keys,
                throttle=self.plan.throttle,
                costs=self.plan.costs,
                group=self.plan.group,
                push=self.plan.push,
            )

    def workers_are_up(self) -> bool:
        """Return True if as many nodes are registered as there are workers."""
        with self.server.connect() as connection:
            [up] = connection.execute("SELECT count(*) FROM pulljobs_node").fetchone() or (0,)
        return bool(up >= self.plan.workers)

    def inject_rounds(self) -> None:
        """Inject faults one after the other, each followed by a pause."""
        wait_for(lambda: bool(self.progress.update()), "the first delivery")
        names = shuffle_forever(self.plan.faults)
        for _round in range(self.plan.rounds or 0):
            time.sleep(self.plan.every)
            self.inject(next(names))
        time.sleep(self.plan.every)

    def inject_faults(self) -> None:
        """Inject the faults of the plan. If they may overlap, use threads and repair at the end."""
        if self.plan.rounds:
            self.inject_rounds()
            return
        names, breaking = shuffle_forever(self.plan.faults), []
        for _time in fault_times(
            self.plan, self.progress, lambda: not self.processes.living("publisher")
        ):
            if (name := next(names, None)) is not None:
                breaking.append(threading.Thread(target=self.inject, args=(name,)))
                breaking[-1].start()
        for thread in breaking:
            thread.join()
        repair(self.targets)

    def inject(self, name: str) -> None:
        """Inject the named fault, and end early if another fault gets in its way."""
        self.injected.append(name)
        since = time.monotonic()
        print(f"{since:.1f} {name}", file=sys.stderr)
        try:
            KINDS[name](self.targets)
        except psycopg.Error as error:
            print(f"{name} met another fault: {error}".strip(), file=sys.stderr)
        except Exception as error:
            self.complaints.append(f"the fault {name} itself failed: {error!r}")
        # Leases of a killed process end, and another one starts.
        until = time.monotonic() + RECOVERED_LEASES * self.plan.lease_duration
        self.disturbed.append(Span(since, until))

    def wait_for_the_rest(self) -> None:
        """Wait until all is published and settled, or until no job was delivered for long."""
        self.processes.enough.touch()
        self.progress.moved_at = time.monotonic()
        while (left := self.left()) and self.progress.stalled_for < STALLED:
            self.progress.update()
            time.sleep(LOOK_SECONDS)
        if left:
            self.complaints.append(f"{left} jobs were not settled when nothing moved any more")

    def left(self) -> int:
        """Return the number of unsettled jobs, at least 1 while a publisher runs."""
        if self.processes.living("publisher"):
            return 1
        with self.server.connect() as connection:
            row = connection.execute(UNFINISHED).fetchone()
        return int(row[0]) if row else 0

    def end_processes(self) -> None:
        """End the processes in order. Record those that ended before, or end with an error."""
        self.processes.over.touch()
        self.replaced += self.processes.unexpected_ends()
        self.complaints += self.processes.idle_releases()
        for process in [*self.processes.living("client"), *self.processes.living("worker")]:
            has_begun = bool(process.at_work()) or process.has_worked
            code = process.end(STOP_SECONDS)
            # A process that replaced a killed one may not handle signals yet.
            if code != 0 and (has_begun or code != -signal.SIGTERM):
                self.complaints.append(f"a {process.role} ended with {code} after SIGTERM")
        wait_for(lambda: not self.processes.living("claimer"), "the claimers' end")
