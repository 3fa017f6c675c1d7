"""PostgreSQL server of the director, which faults may stop, fill and lock."""

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
"""Name of the database and of the role that owns it, which is no superuser."""
CONNECTIONS: Final = 80
PATIENCE_SECONDS: Final = 180
POLL_SECONDS: Final = 0.01
STATE: Final = "PULLJOBS_STATE_DIR"


def wait_for(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition is true. Raise TimeoutError, which names `what`, after 3 minutes."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"Waited {PATIENCE_SECONDS} s for {what}.")
        time.sleep(POLL_SECONDS)


class Restart(NamedTuple):
    """Monotonic times of a restart."""

    stopped_at: float
    started_at: float


class OwnServer:
    """Server in a state directory of its own. It runs until this process ends or stops it."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._restarting = threading.Lock()

    def restart(self) -> Restart:
        """Stop with the mode `immediate`, so that the start has to recover, and start again."""
        with self._restarting:
            stopped = time.monotonic()
            self.stop(signal.SIGQUIT)
            self.start()
            return Restart(stopped, time.monotonic())

    def allow_connections(self, count: int) -> None:
        """Set the number of connections that the server takes, and restart it."""
        with self.connect("pulljobs", autocommit=True) as connection:
            connection.execute(f"ALTER SYSTEM SET max_connections = {int(count)}")
        self.restart()

    def start(self) -> None:
        """Start the server and wait until it answers."""
        with _environment(STATE, str(self.state)):
            launcher.ensure_running()

    def stop(self, how: signal.Signals) -> None:
        """Send the postmaster a signal and wait until the server has ended."""
        with suppress(ProcessLookupError):
            os.kill(int(self.place.pid_file.read_text().splitlines()[0]), how)
        wait_for(self._is_down, "the server's end")

    def prepare(self) -> None:
        """Start the server, and replace its database by an empty one."""
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
        """Connect as the superuser, even to a full server, and with the right to write."""
        return psycopg.connect(
            host=str(self.directory),
            user="pulljobs",
            dbname=database,
            options="-c default_transaction_read_only=off",
            **options,
        )

    def connect_as_worker(self) -> psycopg.Connection[Any]:
        """Connect as the role of the workers."""
        return psycopg.connect(host=str(self.directory), user=NAME, dbname=NAME, autocommit=True)

    @property
    def directory(self) -> Path:
        """Directory of the socket."""
        return self.place.run

    @property
    def place(self) -> Place:
        """Directories of the server."""
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
def own_server(state: Path | None) -> Iterator[OwnServer]:
    """Run a server in a directory, or in a temporary directory if none is given."""
    with tempfile.TemporaryDirectory(prefix="pulljobs-faults-") as temporary:
        os.chmod(temporary, 0o711)
        server = OwnServer(state or Path(temporary))
        server.prepare()
        try:
            yield server
        finally:
            server.stop(signal.SIGINT)


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
