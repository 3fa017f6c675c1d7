"""Thread that makes the calls of a stream while Spark runs a batch."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from pyspark_pulljobs.link import Link

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """Runner of one call at a time in a thread of `pool`, whose result `wait` returns later."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._running: tuple[int, Link, Future[T]] | None = None

    @property
    def seq(self) -> int:
        """Number of the batch that the last call is for, or 0 once `wait` has ended that call."""
        return self._running[0] if self._running else 0

    def start(self, link: Link, seq: int, work: Callable[[], T]) -> None:
        """Start the call for batch number `seq` on the connections of `link`.

        The caller has ended an earlier call by `wait`.
        """
        assert self._running is None
        self._running = seq, link, self._pool.submit(work)

    def wait(self, link: Link) -> tuple[int, T] | None:
        """Wait for the running call, and return its batch number and result, or raise its error.

        Return None if no call was started, or if it failed on an earlier link, whose connections
        were lost.
        """
        if self._running is None:
            return None
        (seq, started_on, work), self._running = self._running, None
        if started_on is not link and work.exception():
            return None
        return seq, work.result()
