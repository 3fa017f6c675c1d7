"""Process that publishes a few jobs a second, and the jobs that the director orders.

    python -m benchmarks.faults.roles.paced_publisher SCRIPT

SCRIPT is JSON: jobs a second (`rate`), average `seconds` of a job, size in bytes of the `largest`
payload (0: no padding), and the files `until`, which ends it, and `orders`. Each line of `orders`
is a JSON object: its `count` of jobs is published with the other values as their payloads, in the
channel `channel`.
"""

import json
import math
import random
import sys
import time
from pathlib import Path
from typing import Any, Final

import django

django.setup()

from django.db import DatabaseError, InterfaceError, connection, transaction  # noqa: E402  Django first

from benchmarks.faults.history import PUBLISHED, ROLLED_BACK, Entry  # noqa: E402
from benchmarks.faults.roles.environment import history_writer  # noqa: E402
from pulljobs import publishing  # noqa: E402
from pulljobs.publishing import Draft  # noqa: E402

CHANNELS: Final = ("faults", "faults", "faults-async")
ENDS: Final = {"well": 0.97, "fail": 0.02, "discard": 0.01}
MOST: Final = 4
"""Largest number of jobs that are published together."""
ROLLED_BACK_SHARE: Final = 0.03
ENVELOPE: Final = 200
"""Bytes of a payload without its padding."""
LONGEST_RESULT: Final = 16_000
PAUSE: Final = 0.05


class PacedPublisher:
    """Publisher of random jobs at an even rate, and of jobs that the director orders."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.rate, self.seconds, self.largest = script["rate"], script["seconds"], script["largest"]
        self.until, self.orders = Path(script["until"]), Path(script["orders"])
        self.done = 0
        """Number of orders that are published."""

    def run(self) -> None:
        """Publish until the file `until` exists."""
        due = time.monotonic()
        while not self.until.exists():
            try:
                self.publish_orders()
                if time.monotonic() >= due:
                    count = random.randint(1, MOST)
                    due = max(due, time.monotonic() - 1) + count / self.rate
                    self.publish_some(random.choice(CHANNELS), count)
            except (DatabaseError, InterfaceError):
                connection.close()
            time.sleep(PAUSE)

    def publish_orders(self) -> None:
        """Publish what the director has ordered since the last call."""
        lines = self.orders.read_text().splitlines() if self.orders.exists() else []
        for line in lines[self.done :]:
            order = json.loads(line)
            channel, count = order.pop("channel"), order.pop("count")
            self.publish(channel, [Draft(payload=order) for _ in range(count)])
            self.done += 1

    def publish_some(self, channel: str, count: int) -> None:
        """Publish `count` random jobs, in some calls in a transaction that is rolled back."""
        drafts, since = [self.draft() for _ in range(count)], time.monotonic()
        if random.random() >= ROLLED_BACK_SHARE:
            self.publish(channel, drafts)
            return
        with transaction.atomic():
            jobs = _store(channel, drafts)
            transaction.set_rollback(True)
        history_writer().write(ROLLED_BACK, jobs, since=since)

    def publish(self, channel: str, drafts: list[Draft]) -> None:
        """Publish drafts by one call, and record when it began and ended."""
        since = time.monotonic()
        history_writer().write(PUBLISHED, _store(channel, drafts), since=since)

    def draft(self) -> Draft:
        """Return a message with an ending, and with a padding if payloads have a largest size."""
        [end] = random.choices(tuple(ENDS), tuple(ENDS.values()))
        payload = {"seconds": random.uniform(0.5, 1.5) * self.seconds, "end": end}
        if self.largest:
            payload["padding"] = "x" * self.padding()
            payload["result"] = random.choice((0, LONGEST_RESULT))
        return Draft(payload=payload)

    def padding(self) -> int:
        """Return a length in bytes: the largest in a tenth of the calls, else log-uniform."""
        longest = self.largest - ENVELOPE
        return (
            longest
            if random.random() < 0.1
            else round(math.exp(random.uniform(0, math.log(longest))))
        )


def _store(channel: str, drafts: list[Draft]) -> list[Entry]:
    """Publish drafts in the caller's transaction, if any. Return a record's entry for each job."""
    if len(drafts) == 1:
        receipts = [publishing.publish(channel, drafts[0].payload)]
    else:
        receipts = list(publishing.publish_many(channel, drafts))
    return [Entry(job) for receipt in receipts for job in receipt.job_ids]


if __name__ == "__main__":
    PacedPublisher(json.loads(sys.argv[1])).run()
