"""What dead children held, until it is given back."""

import logging
import time
from collections import deque
from typing import Final, NamedTuple
from uuid import UUID

from pulljobs import pulling
from pulljobs.storage import nodes
from pulljobs.worker.loop import Runner

logger = logging.getLogger("pulljobs.worker")

IDLE_SECONDS: Final = 60.0


class Debt(NamedTuple):
    """`started` are charged; what only waited in the child is released."""

    node_id: UUID
    started: frozenset[int]


class Debts:
    """Loop: a database that is away delays it; once the leases are over nothing is owed."""

    def __init__(self, using: str) -> None:
        self._using = using
        self._owed: deque[Debt] = deque()
        self._runner = Runner("supervisor", self)
        self._has_started = False

    def owe(self, debt: Debt) -> None:
        self._owed.append(debt)
        if not self._has_started:
            self._has_started = True
            self._runner.start()
        self._runner.wake()

    def tick(self) -> float:
        while self._owed:
            debt = self._owed[0]
            pulling.abandon(debt.node_id, debt.started)
            nodes.stop(self._using, debt.node_id)
            self._owed.popleft()
        return IDLE_SECONDS

    def end(self, seconds: float) -> None:
        """Wait so long for what is owed still."""
        deadline = time.monotonic() + seconds
        while self._owed and time.monotonic() < deadline:
            time.sleep(0.01)
        if self._owed:
            logger.warning("What %d children held comes back by its leases.", len(self._owed))
        self._runner.stop()
        self._runner.join(deadline - time.monotonic())
