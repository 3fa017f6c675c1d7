"""What goes on while Spark runs a batch: the ack of the one before, the claim of the one behind."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

from pyspark_pulljobs.link import Link

T = TypeVar("T")


class Aside(Generic[T]):
    """One work at a time, in a thread of `pool`; what fails it is raised when it is waited for."""

    def __init__(self, pool: ThreadPoolExecutor) -> None:
        self._pool = pool
        self._begun: tuple[int, Link, Future[T]] | None = None

    @property
    def seq(self) -> int:
        """The number of the batch that it is about, or 0."""
        return self._begun[0] if self._begun else 0

    def begin(self, link: Link, seq: int, work: Callable[[], T]) -> None:
        assert self._begun is None
        self._begun = seq, link, self._pool.submit(work)

    def end(self, link: Link) -> tuple[int, T] | None:
        """Wait for it; None: there was none, or it went down with a link that is gone."""
        if self._begun is None:
            return None
        (seq, begun_on, work), self._begun = self._begun, None
        if begun_on is not link and work.exception():
            return None
        return seq, work.result()
