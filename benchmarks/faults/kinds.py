"""Kinds of faults: each function breaks something, and waits and repairs what stays broken."""

import random
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import Any, Final

import psycopg
from psycopg import sql

from benchmarks.faults.roles import clock
from benchmarks.faults.server import NAME
from benchmarks.faults.targets import Targets
from benchmarks.faults.waits import WAITS

CLOCK_SECONDS: Final = 600.0
CUTS: Final = 3
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


def kill(targets: Targets) -> None:
    """Send SIGKILL to a worker or raw claimer: to one of its processes or to all."""
    worker, pids = targets.choose_victim()
    worker.kill(pids)
    targets.kills += 1
    if not worker.is_alive():
        targets.replace(worker)


def stop(targets: Targets) -> None:
    """Freeze one process or all of a worker or raw claimer, mostly for longer than a lease."""
    worker, pids = targets.choose_victim()
    worker.stop(
        pids, targets.plan.lease_duration * (targets.plan.frozen or random.uniform(0.5, 2.5))
    )


def restart(targets: Targets) -> None:
    """Stop PostgreSQL with the mode `immediate` and start it."""
    targets.restarts.append(targets.server.restart())


def terminate(targets: Targets) -> None:
    """Terminate about half of the connections of workers, clients and publishers."""
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
    """Take all connections of the server and terminate those of the other processes."""
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
    """Lock a random table exclusively in another session."""
    with targets.superuser() as connection, connection.transaction():
        table = sql.Identifier(random.choice(TABLES))
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
        targets.pause()


def refuse_rows(targets: Targets) -> None:
    """Make the archive refuse one in 499 jobs for a while."""
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


def cut(targets: Targets) -> None:
    """Cut connections after their commit and before its answer."""
    for _time in range(CUTS):
        targets.signal_proxies(signal.SIGUSR1)
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
    **WAITS,
}
THROUGH_THE_PROXY: Final = frozenset({"cut", "stall", "lose", "gone"})


def repair(targets: Targets) -> None:
    """Undo refused writes and refused archive rows, in case an interrupted fault left them."""
    with targets.superuser() as connection:
        _reload(connection, WRITABLE)
        connection.execute(ALL_LUCKY)


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
