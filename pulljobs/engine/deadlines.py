"""Upper bounds for the duration of statements.

A caller that waits inside of libpq for a server that neither reads nor answers cannot be woken. So
one thread of the process watches the statements that have a bound. Twice a second it starts a
thread for each overdue statement, because a request to cancel may get no answer either. That thread
asks the server to cancel the statement. A single request is not enough: one that arrives between
two statements cancels nothing. When requests do not help in time, the thread shuts down the socket,
and the caller gets an OperationalError.
"""

import logging
import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Final, Protocol

import psycopg

from pulljobs.engine.repeated_warnings import RepeatedWarning

logger = logging.getLogger("pulljobs.engine")

NAME: Final = "pulljobs-deadlines"
GRACE_SECONDS: Final = 5.0
"""Time that a cancelled statement has to end before its connection is cut."""
PASS_SECONDS: Final = 0.5
IDLE_PASSES: Final = 60
"""Passes without a statement to watch, after which the thread ends."""
WARNED_AGAIN: Final = 60.0
"""Seconds until statements without a time limit are logged again."""

_watched: set["Deadline"] = set()
_starting = threading.Lock()
_thread: threading.Thread | None = None
_unbounded: Final = RepeatedWarning(logger, WARNED_AGAIN)


class Deadline:
    """Context manager that bounds the time of the statements of its block on one connection.

    `seconds` is for the whole block.
    """

    __slots__ = ("_cut_at", "_lock", "_raw", "_seconds", "due")

    def __init__(self, raw: "psycopg.Connection[Any] | None", seconds: float) -> None:
        self._raw, self._seconds = raw, seconds
        self._lock = threading.Lock()
        self._cut_at: float | None = None
        self.due = 0.0

    def __enter__(self) -> None:
        self.due = time.monotonic() + self._seconds
        _watched.add(self)
        if _thread is None or not _thread.is_alive():
            _start()

    def __exit__(self, *_error: object) -> None:
        # The lock: a cancellation on its way must not reach the next statement.
        with self._lock:
            _watched.discard(self)

    def enforce(self) -> None:
        """Ask the server to cancel an overdue statement. Cut the connection after a grace time."""
        with self._lock:
            raw, now = self._connection(), time.monotonic()
            if self not in _watched or raw is None or raw.closed or now < self.due:
                return
            if self._cut_at is None:
                self._cut_at = now + GRACE_SECONDS
            if now >= self._cut_at:
                self.due = now + GRACE_SECONDS
                shut_down(raw)
                return
            try:
                raw.cancel_safe(timeout=self._cut_at - now)
            except psycopg.Error as error:
                logger.warning("The server was not asked to cancel a late statement: %s", error)
            self.due = min(time.monotonic() + PASS_SECONDS, self._cut_at)

    def _connection(self) -> "psycopg.Connection[Any] | None":
        """Return the connection that the block uses, or None if it has none at present."""
        return self._raw


class Wrapper(Protocol):
    """Object that may replace its connection, such as Django's for a database alias."""

    connection: Any


class WorkDeadline(Deadline):
    """Context manager that bounds the time of a block, even if it opens a new connection.

    The time to open a connection is not bounded here, but by the option `connect_timeout`.
    """

    __slots__ = ("_wrapper",)

    def __init__(self, wrapper: Wrapper, seconds: float) -> None:
        super().__init__(wrapper.connection, seconds)
        self._wrapper = wrapper

    def restart(self) -> None:
        """Restart the time limit of the block, because the server has answered."""
        with self._lock:
            self.due = time.monotonic() + self._seconds
            self._cut_at = None

    def _connection(self) -> "psycopg.Connection[Any] | None":
        raw: psycopg.Connection[Any] | None = self._wrapper.connection
        return raw


def shut_down(raw: "psycopg.Connection[Any] | psycopg.AsyncConnection[Any]") -> None:
    """Shut down the socket of a connection, so that a thread that waits for it gets an error."""
    with suppress(OSError, psycopg.Error):  # its user may close it at this moment
        descriptor = raw.pgconn.socket
        with socket.socket(fileno=os.dup(descriptor)) as duplicate:
            if raw.pgconn.socket == descriptor:  # else it may be that of another connection by now
                duplicate.shutdown(socket.SHUT_RDWR)


def _start() -> None:
    """Start the thread that watches, or leave the statement unbounded if the system has no room."""
    try:
        _start_once()
    except RuntimeError as error:  # Logged without the lock: a handler of the log may publish.
        _unbounded.log("Statements have no time limit, as no thread starts: %s", error)


def _start_once() -> None:
    global _thread
    with _starting:
        if _thread is None or not _thread.is_alive():
            thread = threading.Thread(target=_watch, name=NAME, daemon=True)
            thread.start()
            _thread = thread


def _watch() -> None:
    global _thread
    idle = 0
    while idle < IDLE_PASSES:
        time.sleep(PASS_SECONDS)
        now = time.monotonic()
        for deadline in [watched for watched in _watched.copy() if watched.due < now]:
            _enforce(deadline)
        idle = 0 if _watched else idle + 1
    with _starting:
        _thread = None
    if _watched:  # A statement began when this thread had looked for the last time.
        _start()


def _enforce(deadline: Deadline) -> None:
    try:
        threading.Thread(target=deadline.enforce, name=f"{NAME}-cancel", daemon=True).start()
    except RuntimeError:  # The system has no room for another thread.
        deadline.enforce()


def _forget() -> None:
    """Reset this module's state in a forked process, which lacks the thread of its parent."""
    global _thread, _starting
    _thread, _starting = None, threading.Lock()
    _watched.clear()


os.register_at_fork(after_in_child=_forget)
