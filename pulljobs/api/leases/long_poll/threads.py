"""Threads that run the statements of all pulls, each with a database connection of its own."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final, TypeVar

from django.db import DatabaseError, InterfaceError, connections

from pulljobs.conf import settings
from pulljobs.engine.deadlines import WorkDeadline
from pulljobs.storage import statements

THREADS: Final = 3
"""Threads for claims, and as many for all other work."""
WORK_SECONDS: Final = 15.0
"""Time limit of the work for a request, after which the server may be silent."""

T = TypeVar("T")


class DatabaseThreads:
    """Threads of one process."""

    def __init__(self) -> None:
        self._using = settings().DATABASE
        self._failures = 0
        self._seen = threading.local()
        self._claiming = [self._executor(f"pulljobs-claim-{n}", 1) for n in range(THREADS)]
        self._serving = self._executor("pulljobs-serve", THREADS)

    def submit(self, work: Callable[[], T], *, claiming_for: int | None = None) -> Future[T]:
        """Run work on a thread.

        All claims of a consumer run on one thread, because low-water marks hold for a connection.
        """
        if claiming_for is None:
            return self._serving.submit(self._run, work)
        return self._claiming[claiming_for % THREADS].submit(self._run, work)

    def close(self) -> None:
        """Return when all submitted work is done and the connections are closed."""
        every = threading.Barrier(THREADS)

        def leave() -> None:
            every.wait()  # Each thread closes its connections.
            connections.close_all()

        wait(
            [self._serving.submit(leave) for _ in range(THREADS)]
            + [executor.submit(connections.close_all) for executor in self._claiming]
        )
        for executor in (self._serving, *self._claiming):
            executor.shutdown()

    def _executor(self, name: str, threads: int) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(threads, name, statements.dedicate, (self._using,))

    def _run(self, work: Callable[[], T]) -> T:
        if getattr(self._seen, "failures", 0) != self._failures:
            # Another thread's connection failed: this one is as old, and may fail, too.
            self._seen.failures = self._failures
            connections.close_all()
        try:
            with WorkDeadline(connections[self._using], WORK_SECONDS):
                return work()
        except (DatabaseError, InterfaceError):
            raw = connections[self._using].connection
            if raw is None or raw.closed:
                connections.close_all()
                self._failures += 1
                self._seen.failures = self._failures
            raise
