"""A few threads, each with a connection of its own that it keeps: all that a process needs."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

from django.db import DatabaseError, InterfaceError, connections

from pulljobs.conf import settings
from pulljobs.storage import statements

THREADS: Final = 3
"""For claims, and as many for all else."""

T = TypeVar("T")


class DatabaseThreads:
    def __init__(self) -> None:
        self._using = settings().DATABASE
        self._failures = 0
        self._seen = threading.local()
        self._claiming = [self._executor(f"pulljobs-claim-{n}", 1) for n in range(THREADS)]
        self._serving = self._executor("pulljobs-serve", THREADS)

    def submit(self, work: Callable[[], T], *, claiming_for: int | None = None) -> Future[T]:
        """All claims of a consumer have one thread: where they begin holds for one connection."""
        if claiming_for is None:
            return self._serving.submit(self._run, work)
        return self._claiming[claiming_for % THREADS].submit(self._run, work)

    def close(self) -> None:
        """Returns when what was submitted is done and the connections are closed."""
        every = threading.Barrier(THREADS)

        def leave() -> None:
            every.wait()  # So that each of them does it.
            connections.close_all()

        wait(
            [self._serving.submit(leave) for _ in range(THREADS)]
            + [one.submit(connections.close_all) for one in self._claiming]
        )
        for one in (self._serving, *self._claiming):
            one.shutdown()

    def _executor(self, name: str, threads: int) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(threads, name, statements.dedicate, (self._using,))

    def _run(self, work: Callable[[], T]) -> T:
        if getattr(self._seen, "failures", 0) != self._failures:
            # Another thread's connection failed: this one is as old, and may be as dead.
            self._seen.failures = self._failures
            connections.close_all()
        try:
            return work()
        except (DatabaseError, InterfaceError):
            raw = connections[self._using].connection
            if raw is None or raw.closed:
                connections.close_all()
                self._failures += 1
                self._seen.failures = self._failures
            raise
