"""Work done while Spark runs a batch: the previous batch is acked, the next batch is claimed."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from pyspark_pulljobs.link import Link

T = TypeVar("T")


class Aside(Generic[T]):
    """Background call, one at a time, in a thread of `pool`; `end` raises the error of the call."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._begun: tuple[int, Link, Future[T]] | None = None

    @property
    def seq(self) -> int:
        """Number of the batch that the running call works on; 0 if no call was begun."""
        return self._begun[0] if self._begun else 0

    def begin(self, link: Link, seq: int, work: Callable[[], T]) -> None:
        assert self._begun is None
        self._begun = seq, link, self._pool.submit(work)

    def end(self, link: Link) -> tuple[int, T] | None:
        """Wait for the call; return None if there was none, or if it failed on an earlier link."""
        if self._begun is None:
            return None
        (seq, begun_on, work), self._begun = self._begun, None
        if begun_on is not link and work.exception():
            return None
        return seq, work.result()
