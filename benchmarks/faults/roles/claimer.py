"""Process that claims and settles by the Python API and often loses its leases.

    python -m benchmarks.faults.roles.claimer UNTIL PAUSE BATCH

It forgets some claims, settles some late and keeps some by renewing. It reaps what other processes
forgot. It claims up to BATCH jobs, then pauses for PAUSE seconds. It ends when the file UNTIL
exists.
"""

import random
import sys
import time
from pathlib import Path
from typing import Final

import django

django.setup()

from django.db import DatabaseError, InterfaceError, connection  # noqa: E402  Django first

from benchmarks.faults.roles.environment import LEASE_DURATION  # noqa: E402
from pulljobs import pulling  # noqa: E402
from pulljobs.engine import outcomes  # noqa: E402
from pulljobs.engine.outcomes import Held, Settlement  # noqa: E402
from pulljobs.models import Consumer  # noqa: E402
from pulljobs.pulling import Puller  # noqa: E402

FORGOTTEN, LATE, KEPT, RETRIED = 0.02, 0.15, 0.05, 0.05
IDLE_SECONDS: Final = 0.02
ERROR_SECONDS: Final = 0.1


class Claimer:
    """Loop that claims jobs, and settles some late, renews some and forgets some."""

    def __init__(self, until: Path, pause: float, batch: int) -> None:
        self.until, self.pause, self.batch = until, pause, batch
        self.puller: Puller | None = None
        self.late: list[tuple[float, list[Held]]] = []
        self.kept: list[tuple[float, list[Held]]] = []

    def run(self) -> None:
        """Claim and settle until the file `until` exists."""
        while not self.until.exists():
            try:
                self.puller = self.puller or Puller("default", Consumer.objects.get(name="worked"))
                if not self.turn(self.puller):
                    time.sleep(IDLE_SECONDS)
                time.sleep(self.pause)
            except (DatabaseError, InterfaceError):
                connection.close()
                time.sleep(ERROR_SECONDS)

    def turn(self, puller: Puller) -> bool:
        """Claim jobs and decide what happens to them. Return False if no job was claimed."""
        if random.random() < 0.1:
            pulling.reap()
        self.settle_due()
        held = self.claim(puller)
        fate = random.random()
        if fate < FORGOTTEN:
            return bool(held)
        if fate < FORGOTTEN + LATE:
            self.late.append((time.monotonic() + LEASE_DURATION * random.uniform(0.9, 1.6), held))
        elif fate < FORGOTTEN + LATE + KEPT:
            self.kept.append((time.monotonic() + LEASE_DURATION * 2, held))
        else:
            self.settle(held)
        return bool(held)

    def claim(self, puller: Puller) -> list[Held]:
        """Claim a random number of jobs."""
        claim = puller.claim(random.randint(1, self.batch))
        if claim.taken is None:
            return []
        return [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]

    def settle_due(self) -> None:
        """Settle late claims that are due. Renew the kept claims, or settle those that are due."""
        now = time.monotonic()
        for due, held in [late for late in self.late if late[0] < now]:
            self.late.remove((due, held))
            self.settle(held)
        for due, held in list(self.kept):
            self.kept.remove((due, held))
            if due < now:
                self.settle(held)
            elif still := list(pulling.renew(held)):
                self.kept.append((due, still))

    def settle(self, held: list[Held]) -> None:
        """Deliver jobs or retry them. If that fails they are forgotten, as after a crash."""
        pulling.finish([_settlement(job) for job in held])


def _settlement(held: Held) -> Settlement:
    return outcomes.deliver(held) if random.random() > RETRIED else outcomes.retry(held, "again")


if __name__ == "__main__":
    Claimer(Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])).run()
