"""Processes of projects that use an embedded PostgreSQL server in a state directory."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg

from example_project.postgres.locks import open_lock, try_exclusive
from example_project.state import BASE_DIR

PATIENCE_SECONDS = 120
# The program answers every line of its input with the directory of a running server.
USER = """
import sys
from example_project.postgres.launcher import ensure_running
for line in sys.stdin:
    print(ensure_running(), flush=True)
"""


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.01)


class User:
    """Process of an embedded project that connects to its server on demand."""

    def __init__(
        self,
        project: "EmbeddedProject",
        *,
        program: str = USER,
        python: str = sys.executable,
        uid: int | None = None,
    ) -> None:
        self.process = subprocess.Popen(
            [python, "-c", program],
            user=uid,
            group=uid,
            extra_groups=None if uid is None else [],
            env=project.environment,
            cwd=project.code,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ask(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def answer(self) -> Path:
        assert self.process.stdout
        assert self.process.stderr
        return Path(self.process.stdout.readline().strip() or self.process.stderr.read())

    def connect(self) -> Path:
        self.ask()
        return self.answer()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


class EmbeddedProject:
    """Project with an embedded server: directories of code and state, environment, processes."""

    def __init__(self, code: Path, state: Path, version: int = 18) -> None:
        self.code = code
        self.cluster = state / f"postgres-{version}"
        self.environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(code),
            "PULLJOBS_STATE_DIR": str(state),
            "PULLJOBS_POSTGRES_VERSION": str(version),
            "PULLJOBS_POSTGRES_FSYNC": "off",
        }
        self.users: list[User] = []

    def user(self, **how: str | int) -> User:
        self.users.append(User(self, **how))  # type: ignore[arg-type]
        return self.users[-1]

    @property
    def home(self) -> Path:
        pointer = self.cluster / "home"
        return Path(pointer.read_text()) if pointer.is_file() else self.cluster

    def stopped(self) -> bool:
        """Return True if both server and watcher have ended, so that neither creates files."""
        if not self.home.exists():
            return True
        locks = [open_lock(self.home / name) for name in ("server.lock", "watcher.lock")]
        try:
            return all(map(try_exclusive, locks))
        finally:
            for lock in locks:
                os.close(lock)

    def end_users(self) -> None:
        while self.users:
            self.users.pop().kill()
        wait_until(self.stopped)

    def close(self) -> None:
        self.end_users()
        for pointer in ("home", "run"):
            if (self.cluster / pointer).is_file():
                shutil.rmtree((self.cluster / pointer).read_text())


@contextmanager
def open_directory() -> Iterator[Path]:
    """Create a temporary directory that other users can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory(prefix="pulljobs-test-") as name:
        os.chmod(name, 0o711)
        yield Path(name)


@contextmanager
def project(
    state: str = "state", version: int = 18, code: Path = BASE_DIR
) -> Iterator[EmbeddedProject]:
    with ExitStack() as stack:
        directory = stack.enter_context(open_directory())
        yield stack.enter_context(closing(EmbeddedProject(code, directory / state, version)))


def postmaster(run: Path) -> int:
    """Return the process id of the server whose socket is in this directory."""
    with psycopg.connect(host=str(run), user="pulljobs", dbname="pulljobs") as connection:
        row = connection.execute("SELECT pg_read_file('postmaster.pid')").fetchone()
    assert row
    return int(row[0].split()[0])


def kill_server(run: Path) -> None:
    """Kill the server whose socket is in this directory, and wait until the socket is closed."""
    os.kill(postmaster(run), signal.SIGKILL)

    def refuses() -> bool:
        with socket.socket(socket.AF_UNIX) as client:
            return client.connect_ex(str(run / ".s.PGSQL.5432")) != 0

    wait_until(refuses)


@contextmanager
def slow_recovery(cluster: EmbeddedProject) -> Iterator[None]:
    """Make a stopped server recover until the end of the block when it is started again."""
    release, data = cluster.home / "release", cluster.home / "data"
    release.unlink(missing_ok=True)
    with (data / "postgresql.auto.conf").open("a") as settings:
        wait = f"until test -e {release}; do sleep 0.01; done; false"
        settings.write(f"restore_command = '{wait}'\n")
    (data / "recovery.signal").touch()
    try:
        yield
    finally:
        release.touch()


@contextmanager
def sleeping(uid: int) -> Iterator[int]:
    """Run an unrelated process of an account, and yield its process id."""
    process = subprocess.Popen(["sleep", "1000"], user=uid if os.geteuid() == 0 else None)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()
