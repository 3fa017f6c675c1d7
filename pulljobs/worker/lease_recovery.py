"""Recovery of the leases of dead child processes."""

import logging
import time
from collections import deque
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs import pulling
from pulljobs.loops import Runner
from pulljobs.storage import nodes

logger = logging.getLogger("pulljobs.worker")

IDLE_SECONDS: Final = 60.0


class DeadChild(NamedTuple):
    """Node of a dead child, and the ids of its jobs that are charged. The others are released."""

    node_id: UUID
    started: frozenset[int]


class LeaseRecovery:
    """Loop of the supervisor that gives back the jobs of dead children, and retries after errors.

    It also writes which jobs run in a silent child. If leases expire meanwhile, a reaper gives back
    their jobs, and nothing is left to recover.
    """

    def __init__(self, using: str) -> None:
        self._using = using
        self._pending: deque[DeadChild] = deque()
        self._silent: dict[UUID, frozenset[int]] = {}
        """Running jobs of silent children, by node, that are not written yet."""
        self._runner = Runner("supervisor", self)
        self._has_started = False

    def add(self, dead: DeadChild) -> None:
        """Schedule the recovery of a dead child's leases."""
        self._silent.pop(dead.node_id, None)
        self._pending.append(dead)
        self._wake()

    def note_running(self, node_id: UUID, running: frozenset[int]) -> None:
        """Schedule a write of the jobs that run in a silent child, which can't write them."""
        self._silent[node_id] = running
        self._wake()

    def _wake(self) -> None:
        if not self._has_started:
            self._has_started = True
            self._runner.start()
        self._runner.wake()

    def tick(self) -> float:
        """Recover the leases of dead children, and record the running jobs of silent ones.

        Return the seconds to sleep.
        """
        while self._silent:
            pulling.note_running(*self._silent.popitem())
        while self._pending:
            dead = self._pending[0]
            pulling.abandon(dead.node_id, dead.started)
            nodes.stop(self._using, dead.node_id)
            self._pending.popleft()
        return IDLE_SECONDS

    def end(self, seconds: float) -> None:
        """Wait at most `seconds` for the pending recoveries, then stop the loop."""
        deadline = time.monotonic() + seconds
        while self._pending and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._pending:
            logger.warning(
                "The leases of %d children are not recovered: their jobs come back when the leases "
                "expire.",
                len(self._pending),
            )
        self._runner.stop()
        self._runner.join(deadline - time.monotonic())
