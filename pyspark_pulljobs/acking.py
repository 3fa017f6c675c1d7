"""The ack of a batch, which goes on while Spark runs the next one."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from pyspark_pulljobs.link import Link

Lost = list[int]
"""How many jobs were lost of each batch."""


class _Ack(NamedTuple):
    seq: int
    link: Link
    done: "Future[Lost]"


class Acking:
    """One at a time; what fails it is raised when it is waited for."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "ack")
        self._ack: _Ack | None = None

    @property
    def seq(self) -> int:
        """The batch up to which acks are on their way, or 0."""
        return self._ack.seq if self._ack else 0

    def begin(self, link: Link, seq: int, work: Callable[[], Lost]) -> None:
        """`work` runs in another thread, on the link's connection for acks."""
        assert self._ack is None
        self._ack = _Ack(seq, link, self._pool.submit(work))

    def end(self, link: Link) -> tuple[int, Lost]:
        """Wait for it; 0: there is none, or it went down with a link that is gone."""
        if self._ack is None:
            return 0, []
        ack, self._ack = self._ack, None
        if ack.link is not link and ack.done.exception():
            return 0, []
        return ack.seq, ack.done.result()
