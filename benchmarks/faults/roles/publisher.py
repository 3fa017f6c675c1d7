"""A process that publishes, some of it in transactions that it rolls back.

    python -m benchmarks.faults.roles.publisher SCRIPT

SCRIPT is JSON: `jobs` to publish (null: until the file `until` exists), the `seconds` that each
runs on average, and of how many `keys` they are (0: none).
"""

import json
import random
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import django

django.setup()

from django.db import DatabaseError, InterfaceError, connection, transaction  # noqa: E402  Django first

from benchmarks.faults.history import PUBLISHED, ROLLED_BACK, Entry  # noqa: E402
from benchmarks.faults.roles.surroundings import pen  # noqa: E402
from pulljobs import operating, publishing  # noqa: E402
from pulljobs.models import Consumer  # noqa: E402
from pulljobs.publishing import Draft  # noqa: E402

BATCH: Final = 100
BACKLOG: Final = 2000
"""Jobs that wait; it does not run further ahead."""
ROLLED_BACK_SHARE: Final = 0.03
FAILING, DISCARDED, DELAYED = 0.02, 0.005, 0.02
PRIORITIES: Final = (0, 0, 0, 1, 5)
DELAY: Final = timedelta(seconds=0.5)
PAUSE: Final = 0.1


class Unwanted(Exception):
    """Raised to roll a publish back."""


class Publisher:
    def __init__(self, script: dict[str, Any]) -> None:
        self.left: float = float("inf") if script["jobs"] is None else script["jobs"]
        self.seconds, self.keys = script["seconds"], script["keys"]
        self.until = Path(script["until"])

    def run(self) -> None:
        consumers: list[Consumer] = []
        while self.left > 0 and (self.left < float("inf") or not self.until.exists()):
            try:
                consumers = consumers or list(Consumer.objects.all())
                if self.is_enough(consumers):
                    time.sleep(PAUSE / 2)
                else:
                    self.publish(int(min(self.left, random.randint(1, BATCH))))
            except (DatabaseError, InterfaceError):
                connection.close()
                time.sleep(PAUSE)

    def is_enough(self, consumers: list[Consumer]) -> bool:
        return any(operating.stats(consumer).ready > BACKLOG for consumer in consumers)

    def publish(self, count: int) -> None:
        drafts = [self.draft() for _ in range(count)]
        try:
            with transaction.atomic():
                receipts = publishing.publish_many("faults", drafts)
                jobs = [Entry(job) for receipt in receipts for job in receipt.job_ids]
                if random.random() < ROLLED_BACK_SHARE:
                    raise Unwanted
        except Unwanted:
            pen().write(ROLLED_BACK, jobs)
        else:
            pen().write(PUBLISHED, jobs)
            self.left -= count

    def draft(self) -> Draft:
        chance = random.random()
        end = "fail" if chance < FAILING else "discard" if chance < FAILING + DISCARDED else "well"
        return Draft(
            payload={"seconds": random.uniform(0.5, 1.5) * self.seconds, "end": end},
            key=str(random.randrange(self.keys)) if self.keys else None,
            priority=random.choice(PRIORITIES),
            delay=DELAY if random.random() < DELAYED else None,
        )


if __name__ == "__main__":
    Publisher(json.loads(sys.argv[1])).run()
