"""The kinds of faults. Each is a function that breaks something, waits, and mends it again."""

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
from benchmarks.faults.processes import Cast, Process
from benchmarks.faults.roles import clock
from benchmarks.faults.server import NAME, Server, Start

CLOCK_SECONDS: Final = 600.0
CUTS: Final = 3
WHOLE: Final = 0.25
"""Of the kills and stops, the share that hits a worker with its supervisor."""
SELDOM: Final = 499
"""One row in so many is the one that can't be written."""
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
MINE: Final = f"datname = current_database() AND usename = '{NAME}'"


@dataclass
class Stage:
    """What faults work on."""

    server: Server
    cast: Cast
    plan: Plan
    proxy: Process | None = None
    starts: list[Start] = field(default_factory=list)
    kills: int = 0

    def pause(self) -> None:
        time.sleep(self.plan.hold * random.uniform(0.5, 1.5))

    @contextmanager
    def superuser(self) -> Iterator[psycopg.Connection[Any]]:
        with self.server.connect(autocommit=True) as connection:
            yield connection


def kill(stage: Stage) -> None:
    """SIGKILL of a working process, or of a worker with its supervisor."""
    worker, pids = _victim(stage)
    worker.kill(pids)
    stage.kills += 1
    if not worker.is_alive():
        _replace(stage, worker)


def stop(stage: Stage) -> None:
    """SIGSTOP of a worker, mostly for longer than its lease, then SIGCONT."""
    worker, pids = _victim(stage)
    worker.stop(pids, stage.plan.lease_duration * (stage.plan.frozen or random.uniform(0.5, 2.5)))


def restart(stage: Stage) -> None:
    """`immediate` stop and start of PostgreSQL."""
    stage.starts.append(stage.server.restart())


def terminate(stage: Stage) -> None:
    """Half of all connections terminated."""
    with stage.superuser() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            f" WHERE {MINE} AND random() < 0.5"
        )


def readonly(stage: Stage) -> None:
    """The server takes no writes."""
    with stage.superuser() as connection:
        _reload(connection, "SET default_transaction_read_only = on")
    stage.pause()
    with stage.superuser() as connection:
        _reload(connection, WRITABLE)


def exhaust(stage: Stage) -> None:
    """All connections of the server taken, and those of the workers terminated."""
    with ExitStack() as taken, stage.superuser() as connection:
        mine: set[int] = set()
        until = time.monotonic() + stage.plan.hold
        while time.monotonic() < until:
            mine |= _take_all(stage, taken)
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                f" WHERE {MINE} AND NOT pid = ANY(%s)",
                [list(mine)],
            )
            time.sleep(0.05)


def lock(stage: Stage) -> None:
    """One table locked by somebody else."""
    with stage.superuser() as connection, connection.transaction():
        table = sql.Identifier(random.choice(TABLES))
        connection.execute(sql.SQL("LOCK TABLE {} IN ACCESS EXCLUSIVE MODE").format(table))
        stage.pause()


def row(stage: Stage) -> None:
    """Rows of the archive that can't be written: one in some hundred."""
    unlucky = random.randrange(SELDOM)
    with stage.superuser() as connection:
        connection.execute(
            f"ALTER TABLE pulljobs_archived_job ADD CONSTRAINT {UNLUCKY}"
            f" CHECK (job_id % {SELDOM} <> {unlucky}) NOT VALID"
        )
    stage.pause()
    with stage.superuser() as connection:
        connection.execute(ALL_LUCKY)


def moved_clock(stage: Stage) -> None:
    """A worker's clock ten minutes ahead or behind, then right again."""
    worker = random.choice(stage.cast.of("worker"))
    clock.move(worker.clock, random.choice((-CLOCK_SECONDS, CLOCK_SECONDS)))
    stage.pause()
    clock.move(worker.clock, 0)


def cut(stage: Stage) -> None:
    """Connections cut after their commit and before its answer."""
    if stage.proxy is None:
        raise LookupError("There is no proxy that could cut.")
    for _time in range(CUTS):
        stage.proxy.popen.send_signal(signal.SIGUSR1)
        time.sleep(stage.plan.hold * random.uniform(0, 1) / CUTS)


KINDS: Final[dict[str, Callable[[Stage], None]]] = {
    "kill": kill,
    "stop": stop,
    "restart": restart,
    "terminate": terminate,
    "readonly": readonly,
    "exhaust": exhaust,
    "lock": lock,
    "row": row,
    "clock": moved_clock,
    "cut": cut,
}


def mend(stage: Stage) -> None:
    """What a fault left broken that met another one."""
    with stage.superuser() as connection:
        _reload(connection, WRITABLE)
        connection.execute(ALL_LUCKY)


def _victim(stage: Stage) -> tuple[Process, list[int]]:
    """A worker or claimer, and which of its processes: one that is at work, or all."""
    every = [*stage.cast.of("worker"), *stage.cast.of("claimer")]
    working = [one for one in every if one.at_work()] or every
    worker = random.choice(working)
    if random.random() < WHOLE:
        return worker, worker.pids()
    return worker, [random.choice(worker.at_work() or worker.pids())]


def _replace(stage: Stage, dead: Process) -> None:
    if dead.role == "worker":
        stage.cast.worker(*stage.plan.worker_flags)
    else:
        stage.cast.claimer()


def _reload(connection: psycopg.Connection[Any], change: str) -> None:
    connection.execute(f"ALTER SYSTEM {change}")
    connection.execute("SELECT pg_reload_conf()")


def _take_all(stage: Stage, taken: ExitStack) -> set[int]:
    pids = set()
    with suppress(psycopg.OperationalError):
        while True:
            connection = taken.enter_context(stage.server.connect_as_worker())
            pids.add(connection.info.backend_pid)
    return pids
