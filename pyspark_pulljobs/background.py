"""Work done while Spark runs a batch: the ack of the previous batch, the claim of the next."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from pyspark_pulljobs.link import Link

T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """Call in a thread of `pool`, one at a time. `wait` raises the error of the call."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._running: tuple[int, Link, Future[T]] | None = None

    @property
    def seq(self) -> int:
        """Number of the batch that the running call works on, or 0 if no call runs."""
        return self._running[0] if self._running else 0

    def start(self, link: Link, seq: int, work: Callable[[], T]) -> None:
        """Start the call for batch `seq`. `wait` must have ended the call before it."""
        assert self._running is None
        self._running = seq, link, self._pool.submit(work)

    def wait(self, link: Link) -> tuple[int, T] | None:
        """Wait for the call, and return its batch number and result.

        Returns None if no call was started, or if it failed on an earlier link.
        """
        if self._running is None:
            return None
        (seq, started_on, work), self._running = self._running, None
        if started_on is not link and work.exception():
            return None
        return seq, work.result()
