"""Kinds of faults: each function breaks something, waits and repairs it."""

import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import psycopg
from psycopg import sql

from benchmarks.faults.plan import Plan
from benchmarks.faults.processes import Process, Processes
from benchmarks.faults.roles import clock
from benchmarks.faults.server import NAME, OwnServer, Restart

CLOCK_SECONDS: Final = 600.0
CUTS: Final = 3
LOCKED_LEASES: Final = 4
"""Number of lease durations for which rows stay locked."""
HELD_JOBS: Final = (
    "SELECT FROM pulljobs_job WHERE state = 'INFLIGHT' LIMIT 3 FOR UPDATE SKIP LOCKED"
)
HELD_LEASES: Final = "SELECT FROM pulljobs_lease LIMIT 2 FOR UPDATE SKIP LOCKED"
WHOLE: Final = 0.25
"""Share of the kills and stops that hit a whole worker with its supervisor."""
SELDOM: Final = 499
"""Number of rows for every row that cannot be written."""
TABLES: Final = (
    "pulljobs_job",
    "pulljobs_lease",
    "pulljobs_archived_job",
    "pulljobs_message",
    "pulljobs_consumer",
)
UNLUCKY: Final = "faults_row"
ALL_LUCKY: Final = f"ALTER TABLE pulljobs_archived_job DROP CONSTRAINT IF EXISTS {UNLUCKY}"
WRITABLE: Final = "RESET default_transaction_read_only"
BY_THE_WORKERS: Final = f"datname = current_database() AND usename = '{NAME}'"


@dataclass
class Targets:
    """Server and processes that faults act on."""

    server: OwnServer
    processes: Processes
    plan: Plan
    proxy: Process | None = None
    restarts: list[Restart] = field(default_factory=list)
    kills: int = 0

    def pause(self) -> None:
        """Wait for about the length of a fault."""
        time.sleep(self.plan.hold * random.uniform(0.5, 1.5))

    @contextmanager
    def superuser(self) -> Iterator[psycopg.Connection[Any]]:
        """Connect as the superuser."""
        with self.server.connect(autocommit=True) as connection:
            yield connection


def kill(targets: Targets) -> None:
    """Send SIGKILL to a working process, or to a worker with its supervisor."""
    worker, pids = _victim(targets)
    worker.kill(pids)
    targets.kills += 1
    if not worker.is_alive():
        _replace(targets, worker)


def stop(targets: Targets) -> None:
    """Stop a worker, mostly for longer than its lease, and continue it."""
    worker, pids = _victim(targets)
    worker.stop(
        pids, targets.plan.lease_duration * (targets.plan.frozen or random.uniform(0.5, 2.5))
    )


def restart(targets: Targets) -> None:
    """Stop PostgreSQL with the mode `immediate` and start it."""
    targets.restarts.append(targets.server.restart())


def terminate(targets: Targets) -> None:
    """Terminate half of all connections."""
    with targets.superuser() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE {BY_THE_WORKERS} AND random() < 0.5"
        )


def readonly(targets: Targets) -> None:
    """Make the server refuse writes for a while."""
    with targets.superuser() as connection:
        _reload(connection, "SET default_transaction_read_only = on")
    targets.pause()
    with targets.superuser() as connection:
        _reload(connection, WRITABLE)


def exhaust(targets: Targets) -> None:
    """Take all connections of the server and terminate those of the workers."""
    with ExitStack() as taken, targets.superuser() as connection:
        ours: set[int] = set()
        until = time.monotonic() + targets.plan.hold
        while time.monotonic() < until:
            ours |= _take_all(targets, taken)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE {BY_THE_WORKERS} AND NOT pid = ANY(%s)",
                [list(ours)],
            )
            time.sleep(0.05)


def lock_table(targets: Targets) -> None:
    """Lock a table in another session."""
    with targets.superuser() as connection, connection.transaction():
        table = sql.Identifier(random.choice(TABLES))
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
        targets.pause()


def refuse_rows(targets: Targets) -> None:
    """Make one in 499 rows of the archive fail to be written."""
    unlucky = random.randrange(SELDOM)
    with targets.superuser() as connection:
        connection.execute(
            f"ALTER TABLE pulljobs_archived_job ADD CONSTRAINT {UNLUCKY}"
            f" CHECK (job_id % {SELDOM} <> {unlucky}) NOT VALID"
        )
    targets.pause()
    with targets.superuser() as connection:
        connection.execute(ALL_LUCKY)


def move_clock(targets: Targets) -> None:
    """Move a worker's clock ten minutes ahead or behind, then back."""
    worker = random.choice(targets.processes.living("worker"))
    clock.move(worker.clock, random.choice((-CLOCK_SECONDS, CLOCK_SECONDS)))
    targets.pause()
    clock.move(worker.clock, 0)


def lock_rows(targets: Targets) -> None:
    """Keep some jobs and their leases locked in another session for several leases."""
    with targets.superuser() as connection, connection.transaction():
        for held in (HELD_JOBS, HELD_LEASES):
            connection.execute(held)
        time.sleep(LOCKED_LEASES * targets.plan.lease_duration)


def stall(targets: Targets) -> None:
    """Let the server and its clients wait for each other for a second, at any byte."""
    for _time in range(CUTS):
        _signal_proxy(targets, signal.SIGUSR2)
        time.sleep(targets.plan.hold * random.uniform(1, 2))


def lose(targets: Targets) -> None:
    """Lose a worker with its machine: its sessions stay open on the server, with their locks."""
    _signal_proxy(targets, signal.SIGHUP)
    worker, _pids = _victim(targets)
    worker.kill(worker.pids())
    targets.kills += 1
    _replace(targets, worker)


def cut(targets: Targets) -> None:
    """Cut connections after their commit and before its answer."""
    for _time in range(CUTS):
        _signal_proxy(targets, signal.SIGUSR1)
        time.sleep(targets.plan.hold * random.uniform(0, 1) / CUTS)


KINDS: Final[dict[str, Callable[[Targets], None]]] = {
    "kill": kill,
    "stop": stop,
    "restart": restart,
    "terminate": terminate,
    "readonly": readonly,
    "exhaust": exhaust,
    "lock": lock_table,
    "row": refuse_rows,
    "clock": move_clock,
    "cut": cut,
    "rows": lock_rows,
    "stall": stall,
    "lose": lose,
}
THROUGH_THE_PROXY: Final = frozenset({"cut", "stall", "lose"})


def repair(targets: Targets) -> None:
    """Repair what a fault left broken because another fault interrupted it."""
    with targets.superuser() as connection:
        _reload(connection, WRITABLE)
        connection.execute(ALL_LUCKY)


def _signal_proxy(targets: Targets, number: int) -> None:
    if targets.proxy is None:
        raise LookupError("No proxy runs: a plan with this fault starts one.")
    targets.proxy.popen.send_signal(number)


def _victim(targets: Targets) -> tuple[Process, list[int]]:
    """Choose a worker or claimer, and one of its working processes or all of them."""
    processes = [*targets.processes.living("worker"), *targets.processes.living("claimer")]
    working = [process for process in processes if process.at_work()] or processes
    worker = random.choice(working)
    if random.random() < WHOLE:
        return worker, worker.pids()
    return worker, [random.choice(worker.at_work() or worker.pids())]


def _replace(targets: Targets, dead: Process) -> None:
    if dead.role == "worker":
        targets.processes.worker(*targets.plan.worker_flags)
    else:
        targets.processes.claimer()


def _reload(connection: psycopg.Connection[Any], change: str) -> None:
    connection.execute(f"ALTER SYSTEM {change}")
    connection.execute("SELECT pg_reload_conf()")


def _take_all(targets: Targets, taken: ExitStack) -> set[int]:
    pids = set()
    with suppress(psycopg.OperationalError):
        while True:
            connection = taken.enter_context(targets.server.connect_as_worker())
            pids.add(connection.info.backend_pid)
    return pids
