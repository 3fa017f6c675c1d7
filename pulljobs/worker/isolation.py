"""Where jobs wait that are suspected of having ended a process, or blocked its event loop."""

from collections import deque
from collections.abc import Iterable

from pulljobs.handlers import ClaimedJob
from pulljobs.worker.in_flight import Holdings
from pulljobs.worker.job_pool import Lane
from pulljobs.worker.result_buffer import Outbox


class Quarantine:
    """Suspects run alone in their process, one by one: if it ends again, it is known by which.

    While there are any, nothing is claimed here; what else is held comes to its end first.
    """

    def __init__(self, holdings: Holdings, outbox: Outbox) -> None:
        self._holdings, self._outbox = holdings, outbox
        self._waiting: deque[tuple[Lane, ClaimedJob]] = deque()
        self._running: ClaimedJob | None = None

    @property
    def is_empty(self) -> bool:
        return not self._waiting and self._running is None

    def take(self, lane: Lane, suspects: Iterable[ClaimedJob]) -> None:
        self._waiting.extend((lane, job) for job in suspects)

    def turn(self) -> None:
        """Let the next one go if nothing else is held."""
        if self._running is not None and self._running not in self._holdings:
            self._running = None
        if self._waiting and len(self._holdings) == len(self._waiting):
            lane, self._running = self._waiting.popleft()
            lane.take([self._running])

    def give_back(self) -> None:
        while self._waiting:
            _lane, job = self._waiting.popleft()
            self._outbox.release(job)
