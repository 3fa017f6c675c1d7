"""Threads that run the statements of pulls, acks and renewals, each with a database connection."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Final, TypeVar

from django.db import DatabaseError, InterfaceError, connections

from pulljobs.api.leases import sharing
from pulljobs.api.leases.sharing import LeaseRequest
from pulljobs.conf import settings
from pulljobs.engine.connection_bounds import may_have_ended
from pulljobs.engine.deadlines import WorkDeadline
from pulljobs.storage import sessions

THREADS: Final = 3
"""Number of threads for claims, and of threads for all other work."""
MOST_TOGETHER: Final = 50
"""Largest number of requests that share statements."""
WORK_SECONDS: Final = 15.0
"""Time limit of each work with the database, for a server that no longer answers."""

T = TypeVar("T")


class DatabaseThreads:
    """Threads of one process that run statements, each with a database connection of its own."""

    def __init__(self) -> None:
        self._using = settings().DATABASE
        self._failures = 0
        self._seen = threading.local()
        self._arrived: deque[LeaseRequest] = deque()
        self._is_called = False
        """True while a thread has been asked to take the arrived requests and has not done so."""
        self._alone: deque[Callable[[], None]] = deque()
        self._may_wait = threading.Semaphore(THREADS - 1)
        """Bound on the threads that do work which may wait for locks: one thread is kept free."""
        self._claiming = [self._executor(f"pulljobs-claim-{n}", 1) for n in range(THREADS)]
        self._serving = self._executor("pulljobs-serve", THREADS)

    def submit(self, work: Callable[[], T], *, claiming_for: int | None = None) -> Future[T]:
        """Run work with the database on a thread, and return the future of its result.

        `claiming_for` is the consumer's id for a claim: all its claims run on one thread, because
        low-water marks hold for one connection.
        """
        if claiming_for is None:
            return self._serving.submit(self.run, work)
        return self._claiming[claiming_for % THREADS].submit(self.run, work)

    def serve(self, request: LeaseRequest) -> None:
        """Serve a request on the next free thread.

        At most MOST_TOGETHER small requests that arrive until then are served together.
        """
        if not request.is_small:
            self.call(partial(sharing.serve, [request], self))
            return
        self._arrived.append(request)
        if not self._is_called:
            self._is_called = True
            self.call(self._serve_arrived)

    def _serve_arrived(self) -> None:
        self._is_called = False  # First: a request that arrives from now on calls a thread.
        together: list[LeaseRequest] = []
        with suppress(IndexError):
            while len(together) < MOST_TOGETHER:
                together.append(self._arrived.popleft())
        if self._arrived:
            self._is_called = True
            self.call(self._serve_arrived)
        sharing.serve(together, self)

    def call(self, work: Callable[[], None]) -> Future[None]:
        """Run work on the next free thread. The work itself calls `run`, which has a time limit."""
        return self._serving.submit(work)

    def run_if_free(self, work: Callable[[], None]) -> bool:
        """Run work on this thread, although it may wait for locks, and return True.

        One thread is always kept free of such work. Return False, without running it, if all other
        threads do such work, or if other such work is queued.
        """
        if self._alone or not self._may_wait.acquire(blocking=False):
            return False
        try:
            work()
        finally:
            self._may_wait.release()
        self._run_alone()
        return True

    def run_alone(self, every: Sequence[Callable[[], None]]) -> None:
        """Queue work that may wait for locks, and run it in turn on this and other threads.

        One thread is kept free of such work. The call may return before all of it is done.
        """
        self._alone.extend(every)
        for _ in range(min(len(every), THREADS - 1) - 1):
            self.call(self._run_alone)
        self._run_alone()

    def _run_alone(self) -> None:
        # A loop: another thread may append work while this one does not look.
        while self._alone and self._may_wait.acquire(blocking=False):
            try:
                while (work := self._next_alone()) is not None:
                    work()
            finally:
                self._may_wait.release()

    def _next_alone(self) -> Callable[[], None] | None:
        try:
            return self._alone.popleft()
        except IndexError:
            return None

    def close(self) -> None:
        """Wait until all submitted work is done, close the connections and end the threads."""
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
        return ThreadPoolExecutor(threads, name, sessions.dedicate, (self._using,))

    @property
    def is_connected(self) -> bool:
        """True if the current thread has a database connection. Errors of the network close it."""
        return connections[self._using].connection is not None

    def run(self, work: Callable[[], T]) -> T:
        """Run work with the database on the current thread. It fails after WORK_SECONDS.

        A connection that breaks is closed. The other threads then replace their connections before
        their next work.
        """
        try:
            with WorkDeadline(connections[self._using], WORK_SECONDS):
                self._close_if_dead()
                return work()
        except (DatabaseError, InterfaceError):
            raw = connections[self._using].connection
            if raw is None or raw.closed:
                connections.close_all()
                self._failures += 1
                self._seen.failures = self._failures
            raise

    def _close_if_dead(self) -> None:
        """Close the connections of this thread if that of the jobs may be dead.

        It may be if that of another thread has failed, which is as old. A server or a proxy may
        have ended it while it was idle.
        """
        is_as_old = getattr(self._seen, "failures", 0) != self._failures
        self._seen.failures = self._failures
        connection = connections[self._using]
        raw = connection.connection
        has_ended = raw is not None and may_have_ended(raw) and not connection.is_usable()
        if is_as_old or has_ended:
            connections.close_all()
