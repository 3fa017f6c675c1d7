"""Process that publishes, and rolls some of its transactions back.

    python -m benchmarks.faults.roles.publisher SCRIPT

SCRIPT is JSON: `jobs` to publish (null: until the file `until` exists), average `seconds` of a job,
the number of `keys` (0: none), the highest of the `costs`, `group` (publish for both consumers of a
group), `push` (publish for the push consumer as well), and the seconds of a `throttle` (0: no job
throttles). In the history, the `outcome` of a published job is its cost.
"""

import json
import random
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import django

django.setup()

from django.db import DatabaseError, InterfaceError, connection, transaction  # noqa: E402  Django first

from benchmarks.faults.history import PUBLISHED, ROLLED_BACK, Entry  # noqa: E402
from benchmarks.faults.roles.endings import THROTTLE  # noqa: E402
from benchmarks.faults.roles.environment import history_writer  # noqa: E402
from pulljobs import operating, publishing  # noqa: E402
from pulljobs.models import Consumer  # noqa: E402
from pulljobs.publishing import Draft, Receipt  # noqa: E402

BATCH: Final = 100
BACKLOG: Final = 2000
"""Number of queued jobs above which the publisher waits."""
ROLLED_BACK_SHARE: Final = 0.03
THROTTLED_SHARE: Final = 0.01
DELAYED = 0.02
ENDS = {"well": 0.9748, "fail": 0.01, "interrupt": 0.01, "discard": 0.005, "hold": 0.0002}
"""Endings of jobs, described in `endings`, with their shares."""
PRIORITIES: Final = (0, 0, 0, 1, 5)
DELAY: Final = timedelta(seconds=0.5)
PAUSE: Final = 0.1
CHANNELS: Final = ("faults", "faults-async")


class Unwanted(Exception):
    """Exception that rolls a publish back."""


class Publisher:
    """Publisher of jobs with random keys, priorities, costs, delays and endings."""

    def __init__(self, script: dict[str, Any]) -> None:
        self.left: float = float("inf") if script["jobs"] is None else script["jobs"]
        self.seconds, self.keys = script["seconds"], script["keys"]
        self.throttle, self.costs = script["throttle"], script["costs"]
        self.channels = [*(CHANNELS if script["group"] else CHANNELS[:1])]
        self.channels += ["faults-push"] if script["push"] else []
        self.until = Path(script["until"])

    def run(self) -> None:
        """Publish the wanted number of jobs, or without a number until the file `until` exists."""
        consumers: list[Consumer] = []
        while self.left > 0 and (self.left < float("inf") or not self.until.exists()):
            try:
                consumers = consumers or list(Consumer.objects.select_related("channel"))
                if channels := self.find_channels(consumers):
                    count = int(min(self.left, random.randint(1, BATCH)))
                    self.publish(random.choice(channels), count)
                else:
                    time.sleep(PAUSE / 2)
            except (DatabaseError, InterfaceError):
                connection.close()
                time.sleep(PAUSE)

    def find_channels(self, consumers: list[Consumer]) -> list[str]:
        """Return the names of the channels that have few queued jobs."""
        return [
            consumer.channel.name
            for consumer in consumers
            if consumer.channel.name in self.channels and operating.stats(consumer).ready <= BACKLOG
        ]

    def publish(self, channel: str, count: int) -> None:
        """Publish in a transaction that is sometimes rolled back, and record the result."""
        drafts = [self.draft() for _ in range(count)]
        try:
            with transaction.atomic():
                receipts = publishing.publish_many(channel, drafts)
                if random.random() < ROLLED_BACK_SHARE:
                    raise Unwanted
        except Unwanted:
            _record(ROLLED_BACK, drafts, receipts)
        else:
            _record(PUBLISHED, drafts, receipts)
            self.left -= count

    def draft(self) -> Draft:
        [end] = random.choices(tuple(ENDS), tuple(ENDS.values()))
        if self.throttle and random.random() < THROTTLED_SHARE:
            end = THROTTLE
        seconds = random.uniform(0.5, 1.5) * self.seconds
        return Draft(
            payload={"seconds": seconds, "end": end, "throttle": self.throttle},
            key=str(random.randrange(self.keys)) if self.keys else None,
            priority=random.choice(PRIORITIES),
            delay=DELAY if random.random() < DELAYED else None,
            cost=random.randint(1, self.costs),
        )


def _record(event: str, drafts: Sequence[Draft], receipts: Sequence[Receipt]) -> None:
    """Record an event of the jobs in the history, in one record for all jobs with equal delays."""
    jobs: dict[timedelta | None, list[Entry]] = defaultdict(list)
    for draft, receipt in zip(drafts, receipts, strict=True):
        jobs[draft.delay] += [Entry(job, outcome=str(draft.cost)) for job in receipt.job_ids]
    for delay, entries in jobs.items():
        history_writer().write(event, entries, seconds=delay.total_seconds() if delay else 0)


if __name__ == "__main__":
    Publisher(json.loads(sys.argv[1])).run()
