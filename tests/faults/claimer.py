"""A process that claims and settles, not always as it should.

    python -m tests.faults.claimer CONSUMER LEASE_SECONDS HISTORY GO

Of its claims it forgets some, settles some late, and keeps some by renewing. It reaps what others
forgot. It ends when no job is left.
"""

import os
import random
import sys
import time
from pathlib import Path

import django

django.setup()

from pulljobs import outcomes, pulling  # noqa: E402  Django first
from pulljobs.models import Consumer, Job  # noqa: E402
from pulljobs.outcomes import Held  # noqa: E402
from pulljobs.pulling import Puller  # noqa: E402
from tests.faults.history import ANSWERED, CLAIMED, LOST, RENEWED, SENT, Pen  # noqa: E402

BATCH = 40
FORGOTTEN, LATE, KEPT = 0.02, 0.02, 0.02


class Claimer:
    def __init__(self, consumer: Consumer, lease: float, pen: Pen) -> None:
        self.consumer, self.lease, self.pen = consumer, lease, pen
        self.puller = Puller("default", consumer)
        self.late: list[tuple[float, list[Held]]] = []
        self.kept: list[tuple[float, list[Held]]] = []

    def run(self) -> None:
        while Job.objects.filter(consumer=self.consumer).exists():
            while self.turn():
                pass
            time.sleep(0.01)

    def turn(self) -> bool:
        """Whether there was something to claim."""
        if random.random() < 0.1:
            pulling.reap()
        self.settle_due()
        held = self.claim()
        fate = random.random()
        if fate < FORGOTTEN:
            return bool(held)
        if fate < FORGOTTEN + LATE:
            self.late.append((time.monotonic() + self.lease * random.uniform(0.9, 1.6), held))
        elif fate < FORGOTTEN + LATE + KEPT:
            self.kept.append((time.monotonic() + self.lease * 2, held))
        else:
            self.settle(held)
        return bool(held)

    def claim(self) -> list[Held]:
        since = time.monotonic()
        claim = self.puller.claim(random.randint(1, BATCH))
        if claim.taken is None:
            return []
        held = [Held(job.id, claim.taken.token) for job, _message in claim.jobs]
        for job_id, token in held:
            self.pen.write(CLAIMED, job_id, token, since, self.lease)
        return held

    def settle_due(self) -> None:
        now = time.monotonic()
        for due, held in [one for one in self.late if one[0] < now]:
            self.late.remove((due, held))
            self.settle(held)
        for due, held in list(self.kept):
            self.kept.remove((due, held))
            if due < now:
                self.settle(held)
            elif still := self.renew(held):
                self.kept.append((due, still))

    def renew(self, held: list[Held]) -> list[Held]:
        since = time.monotonic()
        renewed = pulling.renew(held)
        for job_id, token in renewed:
            self.pen.write(RENEWED, job_id, token, since, self.lease)
        return list(renewed)

    def settle(self, held: list[Held]) -> None:
        since = time.monotonic()
        for job_id, token in held:
            self.pen.write(SENT, job_id, token, since)
        states = pulling.finish(
            [
                outcomes.deliver(one) if random.random() < 0.95 else outcomes.retry(one, "again")
                for one in held
            ]
        ).states
        for job_id, token in held:
            self.pen.write(ANSWERED, job_id, token, since, states.get(job_id, LOST))


def main(consumer: str, lease: str, history: str, go: str) -> None:
    claimer = Claimer(Consumer.objects.get(pk=consumer), float(lease), Pen(Path(history)))
    Path(f"{go}-{os.getpid()}").touch()
    while not Path(go).exists():
        time.sleep(0.001)
    claimer.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
