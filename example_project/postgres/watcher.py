"""Script that stops the server when its last user has ended. It uses only the standard library."""

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.02
FAST_SECONDS = 60
"""Seconds to wait for the end of the server after each kind of shutdown."""


def main(home: Path, pid_file: Path) -> None:
    watching = _open(home / "watcher.lock")
    if not _free(watching) or os.fork():
        # Another watcher runs, or the child of this process, which has the lock, too.
        return
    users = _open(home / "users.lock")
    fcntl.flock(users, fcntl.LOCK_EX)
    # From here on a new user waits for this lock, then starts a server and a watcher.
    _stop(_open(home / "server.lock"), pid_file)
    os.close(watching)
    os.close(users)


def _stop(server: int, pid_file: Path) -> None:
    """Stop the server by a fast shutdown, and by an immediate one if that takes too long."""
    for how in (signal.SIGINT, signal.SIGQUIT):
        deadline = time.monotonic() + FAST_SECONDS
        while not _free(server) and time.monotonic() < deadline:
            _signal(pid_file, how)
            time.sleep(POLL_SECONDS)


def _signal(pid_file: Path, how: signal.Signals) -> None:
    """Send a signal to the server. Ignore that it has ended, or that its files were deleted."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError, IndexError, ValueError):
        os.kill(int(pid_file.read_text().splitlines()[0]), how)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _free(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
