"""Advisory locks on files, which the kernel releases when the last process that holds them ends."""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

POLL_SECONDS = 0.01


def open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def try_exclusive(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    lock = open_lock(path)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        # Closing is not enough: a child that was forked in between holds the lock, too.
        fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def wait_exclusive(lock: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not try_exclusive(lock):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True
