"""Faults between two statements: the process kills or stops itself, or drops its connection.

The injector wraps the cursors and the commits of psycopg, and counts the statements of runs and of
their settlements. At a number that a seeded generator chooses, it injects a fault before or after
the statement. Each process takes the next number of the run as the seed of its generator.
"""

import os
import random
import re
import signal
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psycopg

KINDS: Final = ("kill", "stop", "cut", "lose")
"""`cut` drops the connection, `lose` drops it after a statement and before its answer."""
OURS: Final = re.compile(r"pulljobs_(run|step|signal|batch|archived_job)|proof_effect")
FARTHEST: Final = 30
"""Largest number of statements before the next fault."""
LONGEST_NAME: Final = 60
ENOUGH: Final = "enough"
FAULTS: Final = "faults"


def install(folder: Path, seed: int) -> None:
    """Make this process inject faults into itself until `folder` has a file named `enough`."""
    injector = Injector(folder, random.Random(f"{seed} {_take_number(folder)}"))
    cursor: Any = psycopg.Cursor
    cursor.execute = _wrap_execute(cursor.execute, injector)
    connection: Any = psycopg.Connection
    connection.commit = _wrap_commit(connection.commit, injector)


def _take_number(folder: Path) -> int:
    """Take the lowest free number of a process of the run, from 1 on, and return it."""
    number = 1
    while True:
        try:
            (folder / f"process-{number}").touch(exist_ok=False)
        except FileExistsError:
            number += 1
        else:
            return number


class Injector:
    """Countdown to the next fault of a process."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self._folder, self._chance = folder, chance
        self._lock = threading.Lock()
        self._threads = threading.local()
        self._left = self._choose()

    def count(self, text: str) -> str | None:
        """Count a statement. Return the kind of fault to inject at it, or None."""
        if not self._is_counted(text):
            return None
        with self._lock:
            self._left -= 1
            if self._left:
                return None
            self._left = self._choose()
            kind = self._chance.choice(KINDS)
        return None if (self._folder / ENOUGH).exists() else kind

    def is_before(self) -> bool:
        """Return True, at random, if the fault is to come before its statement and not after it."""
        return self._chance.random() < 0.5

    def break_now(self, kind: str, connection: psycopg.Connection[Any], text: str) -> None:
        """Record the fault, then kill or stop this process, or cut the connection."""
        with (self._folder / FAULTS).open("a") as faults:
            faults.write(f"{kind} {os.getpid()} {' '.join(text.split())[:LONGEST_NAME]}\n")
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            _cut(connection)

    def _is_counted(self, text: str) -> bool:
        """Return True if runs or batches use the statement's table, or if its thread does runs."""
        self._threads.runs = getattr(self._threads, "runs", False) or "pulljobs_run" in text
        return self._threads.runs or OURS.search(text) is not None

    def _choose(self) -> int:
        return self._chance.randint(1, FARTHEST)


def _cut(connection: psycopg.Connection[Any]) -> None:
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def _wrap_execute(execute: Callable[..., Any], injector: Injector) -> Callable[..., Any]:
    def execute_or_break(cursor: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        text = _text_of(query)
        return _inject(
            injector, cursor.connection, text, lambda: execute(cursor, query, *args, **kwargs)
        )

    return execute_or_break


def _wrap_commit(commit: Callable[..., Any], injector: Injector) -> Callable[..., Any]:
    def commit_or_break(connection: Any) -> None:
        _inject(injector, connection, "COMMIT", lambda: commit(connection))

    return commit_or_break


def _inject(
    injector: Injector, connection: psycopg.Connection[Any], text: str, act: Callable[[], Any]
) -> Any:
    """Execute a statement by `act`, and inject a fault before or after it if one is due."""
    kind = injector.count(text)
    if kind is None:
        return act()
    if kind != "lose" and injector.is_before():
        injector.break_now(kind, connection, text)
        return act()
    result = act()
    injector.break_now(kind, connection, text)
    if kind == "lose":
        raise psycopg.OperationalError("The answer was lost: the injector cut the connection.")
    return result


def _text_of(query: Any) -> str:
    if isinstance(query, bytes):
        return query.decode()
    return query if isinstance(query, str) else ""
