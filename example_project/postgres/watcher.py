"""Stops the server when its last user has ended. A script of its own, standard library only."""

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

POLL_SECONDS = 0.02
FAST_SECONDS = 60


def main(home: Path, pid_file: Path) -> None:
    watching = _open(home / "watcher.lock")
    if not _free(watching) or os.fork():
        # Somebody watches: another watcher, or our child, which has the lock too.
        return
    users = _open(home / "users.lock")
    fcntl.flock(users, fcntl.LOCK_EX)
    # From here on a new user waits for us, then starts a new server and finds no watcher.
    _stop(_open(home / "server.lock"), pid_file)
    os.close(watching)
    os.close(users)


def _stop(server: int, pid_file: Path) -> None:
    """A fast stop, then an immediate one."""
    for how in (signal.SIGINT, signal.SIGQUIT):
        deadline = time.monotonic() + FAST_SECONDS
        while not _free(server) and time.monotonic() < deadline:
            _tell(pid_file, how)
            time.sleep(POLL_SECONDS)


def _tell(pid_file: Path, how: signal.Signals) -> None:
    """A server whose files were deleted, or that has just gone, ends by itself."""
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
