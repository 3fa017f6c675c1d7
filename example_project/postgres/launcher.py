"""Start of the server, safe against processes that start, stop or kill it at the same time."""

import fcntl
import logging
import math
import os
import subprocess
import sys
import time
from pathlib import Path

from example_project.postgres import cluster, watcher
from example_project.postgres.binaries import TREES, programs
from example_project.postgres.errors import EmbeddedPostgresError
from example_project.postgres.locks import (
    POLL_SECONDS,
    exclusive,
    open_lock,
    try_exclusive,
    wait_exclusive,
)
from example_project.postgres.place import Place, place_in
from example_project.state import state_directory

ORPHAN_SECONDS = 30
SLOW_SECONDS = 10
SLOW = (
    "The embedded PostgreSQL is still starting: after a crash it recovers first, which may take "
    "minutes. Its log is %s."
)

logger = logging.getLogger(__name__)

_places: dict[Path, Place] = {}
_held: dict[Path, int] = {}


def ensure_running() -> Path:
    """Start the server if it does not run, and keep it running until this process has ended.

    Return the directory of its socket.
    """
    version = _version()
    state = state_directory() / f"postgres-{version}"
    place = _places.get(state)
    if place is None or not cluster.is_up(place):
        try:
            place = _places[state] = _started(state, version)
        except PermissionError as error:
            raise EmbeddedPostgresError(
                f"The embedded PostgreSQL in {state} is closed to this user ({error}): be the user "
                "who made it, or set PULLJOBS_STATE_DIR to a directory of yours, or DATABASE_URL."
            ) from None
    return place.run


def _version() -> int:
    wanted = os.environ.get("PULLJOBS_POSTGRES_VERSION") or "18"
    if wanted not in map(str, TREES):
        raise EmbeddedPostgresError(
            f"There is no embedded PostgreSQL {wanted}: set PULLJOBS_POSTGRES_VERSION to "
            f"{' or '.join(map(str, TREES))}, or set DATABASE_URL to a server of yours."
        )
    return int(wanted)


def _started(state: Path, version: int) -> Place:
    if not state.is_dir():
        state.mkdir(exist_ok=True)
        state.chmod(0o711)
    with exclusive(state / "start.lock"):
        place = place_in(state)
        _hold(place.home / "users.lock")
        # The watcher starts first, because this process may be killed while the server starts.
        _watch(place)
        if not cluster.is_up(place):
            _start(place, version)
    return place


def _hold(users: Path) -> None:
    """Take the shared lock of the server's users, until this process and its forks have ended."""
    if users not in _held:
        lock = open_lock(users)
        # The call waits while the watcher stops the server of earlier users.
        fcntl.flock(lock, fcntl.LOCK_SH)
        _held[users] = lock


def _start(place: Place, version: int) -> None:
    lock = open_lock(place.home / "server.lock")
    try:
        if not wait_exclusive(lock, ORPHAN_SECONDS):
            raise EmbeddedPostgresError(
                "The embedded PostgreSQL does not answer but some of its processes live on: "
                f"end the `postgres` processes of {place.data} and try again."
            )
        binaries = programs(version, place.account, place.home)
        if not place.data.exists():
            cluster.create(place, binaries, version)
        cluster.start(place, binaries, lock)
    finally:
        os.close(lock)
    _wait(place)


def _wait(place: Place) -> None:
    """Wait until the server is up, without a limit of time, and log a warning if that takes long.

    After a crash it recovers first. To stop it then would make it recover again.
    """
    if not _comes_up(place, SLOW_SECONDS):
        logger.warning(SLOW, place.log)
        _comes_up(place, math.inf)


def _comes_up(place: Place, seconds: float) -> bool:
    """Return True if the server is up within these seconds, else False.

    Raise EmbeddedPostgresError if it ended.
    """
    lock = open_lock(place.home / "server.lock")
    deadline = time.monotonic() + seconds
    try:
        while not cluster.is_up(place):
            if try_exclusive(lock):
                raise EmbeddedPostgresError(
                    f"The embedded PostgreSQL did not start, its log is {place.log}; to begin with "
                    f"an empty database remove {place.data}."
                )
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_SECONDS)
    finally:
        os.close(lock)
    return True


def _watch(place: Place) -> None:
    """Start a watcher unless there is one, and return when it holds its lock."""
    subprocess.run(
        [sys.executable, "-I", "-S", watcher.__file__, place.home, place.pid_file],
        cwd="/",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=True,
    )
