"""A PostgreSQL of the director's own, to be stopped, filled and locked at will."""

import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import psycopg

from example_project.postgres import cluster, launcher
from example_project.postgres.locks import open_lock, try_exclusive
from example_project.postgres.place import Place, place_in

NAME: Final = "faults"
"""Of the database, and of the role that owns it and is no superuser."""
CONNECTIONS: Final = 80
PATIENCE_SECONDS: Final = 180
POLL_SECONDS: Final = 0.01
STATE: Final = "PULLJOBS_STATE_DIR"


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {PATIENCE_SECONDS} s for {what}.")
        time.sleep(POLL_SECONDS)


class Start(NamedTuple):
    stopped_at: float
    started_at: float


class Server:
    """In a state directory of its own; up while this process lives, unless it is stopped."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._restarting = threading.Lock()

    def restart(self) -> Start:
        """Stopped `immediate`: nothing is written back, the next start recovers."""
        with self._restarting:
            stopped = time.monotonic()
            self.stop(signal.SIGQUIT)
            self.start()
            return Start(stopped, time.monotonic())

    def start(self) -> None:
        with _environment(STATE, str(self.state)):
            launcher.ensure_running()

    def stop(self, how: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(int(self.place.pid_file.read_text().splitlines()[0]), how)
        wait_for(self._is_down, "the server's end")

    def prepare(self) -> None:
        """An empty database of ours."""
        self.start()
        with self.connect("pulljobs", autocommit=True) as connection:
            is_known = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [NAME])
            if not is_known.fetchone():
                self._adopt(connection)
        with self.connect("pulljobs", autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE {NAME} OWNER {NAME}")

    def _adopt(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"CREATE ROLE {NAME} LOGIN")
        connection.execute(f"ALTER SYSTEM SET max_connections = {CONNECTIONS}")
        self.stop(signal.SIGINT)
        self.start()

    def connect(self, database: str = NAME, **options: Any) -> psycopg.Connection[Any]:
        """As the superuser, whom neither a full server nor a read-only one keeps out."""
        return psycopg.connect(
            host=str(self.directory),
            user="pulljobs",
            dbname=database,
            options="-c default_transaction_read_only=off",
            **options,
        )

    def connect_as_worker(self) -> psycopg.Connection[Any]:
        return psycopg.connect(host=str(self.directory), user=NAME, dbname=NAME, autocommit=True)

    @property
    def directory(self) -> Path:
        """Of the socket."""
        return self.place.run

    @property
    def place(self) -> Place:
        [directory] = self.state.glob("postgres-*")
        return place_in(directory)

    def _is_down(self) -> bool:
        if cluster.is_up(self.place):
            return False
        lock = open_lock(self.place.home / "server.lock")
        try:
            return try_exclusive(lock)
        finally:
            os.close(lock)


@contextmanager
def server(state: Path | None) -> Iterator[Server]:
    """In that directory, or in one that is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="pulljobs-faults-") as temporary:
        os.chmod(temporary, 0o711)
        made = Server(state or Path(temporary))
        made.prepare()
        try:
            yield made
        finally:
            made.stop(signal.SIGINT)


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]
        if before is not None:
            os.environ[name] = before
