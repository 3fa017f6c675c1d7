"""Processes that publish as many jobs as they are allowed."""

import time
from typing import Any, Final

from django.db import connections

from benchmarks.contenders import FORK
from benchmarks.database import CHANNEL
from benchmarks.publishing import PAYLOAD
from pulljobs.publishing import BATCH, publish_many

IDLE_SECONDS: Final = 0.01


class Publishers:
    """Publishing processes that share an allowance of jobs."""

    def __init__(self, processes: int) -> None:
        self.allowed = 0
        self._left: Any = FORK.Value("q", 0)
        self._done: Any = FORK.Value("q", 0)
        connections.close_all()
        self._processes = [
            FORK.Process(target=self._publish, daemon=True) for _number in range(processes)
        ]

    def __enter__(self) -> "Publishers":
        for process in self._processes:
            process.start()
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            process.terminate()
            process.join()

    def allow(self, count: int) -> None:
        """Allow `count` more jobs."""
        self.allowed += count
        _add(self._left, count)

    def are_done(self) -> bool:
        """Return True if all allowed jobs are committed. Raise SystemExit if a process failed."""
        if not all(process.is_alive() for process in self._processes):
            raise SystemExit("A publisher failed: its error is above.")
        return self.published == self.allowed

    @property
    def published(self) -> int:
        """Number of committed jobs."""
        return int(self._done.value)

    def _publish(self) -> None:
        while True:
            if count := self._take():
                publish_many(CHANNEL, [PAYLOAD] * count)
                _add(self._done, count)
            else:
                time.sleep(IDLE_SECONDS)

    def _take(self) -> int:
        with self._left.get_lock():
            count = min(BATCH, int(self._left.value))
            self._left.value -= count
        return count


def _add(counter: Any, count: int) -> None:
    with counter.get_lock():
        counter.value += count
