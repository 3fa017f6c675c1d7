"""State of consumers now: counts and age of their jobs, and the processes that serve them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db.models import Sum
from django.db.models.functions import Now

from pulljobs.admin.dashboard import formats, limit_holds
from pulljobs.admin.dashboard.limit_holds import LimitHold
from pulljobs.admin.dashboard.workers import Worker
from pulljobs.conf import settings
from pulljobs.models import Consumer, PullWaiter
from pulljobs.storage import backlog, counts, dead
from pulljobs.storage.backlog import Backlog

SHOWN: Final = 40
"""Largest number of consumers in the table, the first by name. Sums and findings cover all."""


DEAD_ROWS: Final = 200_000
"""Largest number of DEAD jobs that are counted for all consumers together.

Of each consumer 10,000 are counted in any case.
"""


@dataclass(frozen=True)
class ConsumerStatus:
    """State of a consumer at the time `now`, for a row of the dashboard or of `pulljobs top`."""

    consumer: Consumer
    backlog: Backlog
    now: datetime
    waiting: int
    """Number of long polls that wait for its jobs."""
    workers: Sequence[Worker] | None
    """Workers that report that they serve it, or None if they are unknown."""
    estimate: int | None = None
    """Estimated number of queued jobs if they are too many to count, else None."""
    hold: LimitHold | None = None
    """Limit because of which no ready job can be claimed now, or None."""

    @property
    def path(self) -> str:
        """Consumer path, `channel/consumer`."""
        return self.consumer.path

    @property
    def oldest_seconds(self) -> float | None:
        """Seconds since the oldest ready job became ready, or None if no job is ready."""
        oldest = self.backlog.oldest_ready_at
        return None if oldest is None else max(0.0, (self.now - oldest).total_seconds())

    @property
    def paused_until(self) -> datetime | None:
        """End of the pause of the consumer or its channel, or None if it is not paused."""
        ends = [self.consumer.paused_until, self.consumer.channel.paused_until]
        return max((end for end in ends if end and end > self.now), default=None)

    @property
    def is_served(self) -> bool:
        """True if a worker serves the consumer, a long poll waits for jobs or a job is in flight.

        It is also True while the workers are unknown.
        """
        return self.workers is None or bool(self.workers or self.waiting or self.backlog.in_flight)

    @property
    def is_unserved(self) -> bool:
        """True if jobs are ready, no process serves the consumer, and it is not paused."""
        return bool(self.backlog.ready) and not self.is_served and self.paused_until is None

    @property
    def queued(self) -> int:
        """Number of queued jobs, counted or estimated."""
        return self.backlog.queued if self.estimate is None else self.estimate


def read_statuses(
    now: datetime,
    workers: Sequence[Worker] | None,
    among: Sequence[Consumer] | None = None,
    estimated: int = SHOWN,
) -> list[ConsumerStatus]:
    """Return the state of the consumers in `among`, by default of all not deleted, by name.

    `workers` is None if they are unknown. Where queued jobs are too many to count, their number is
    estimated, but only for the first `estimated` consumers, because each estimate is a query.
    """
    using = settings().DATABASE
    known = counts.consumers(using) if among is None else among
    waiting, serving = _waiting(using), _serving(workers or ())
    ids = [consumer.pk for consumer in known]
    backlogs = {row.consumer_id: row for row in backlog.backlogs(using, ids)}
    backlogs |= _count_dead(using, backlogs)
    ready = [each for each in known if backlogs[each.pk].ready]
    held = {pk: row.in_flight for pk, row in backlogs.items()}
    holds = limit_holds.read_holds(using, now, ready, held)
    return [
        ConsumerStatus(
            consumer,
            backlogs[consumer.pk],
            now,
            waiting.get(consumer.pk, 0),
            None if workers is None else serving.get(consumer.path, ()),
            backlog.estimate(using, backlogs[consumer.pk]) if number < estimated else None,
            holds.get(consumer.pk),
        )
        for number, consumer in enumerate(known)
    ]


def _count_dead(using: str, backlogs: Mapping[int, Backlog]) -> dict[int, Backlog]:
    """Count DEAD jobs again, up to a higher cap, for consumers whose count was cut off.

    Return the new backlogs of these consumers by primary key.
    """
    capped = [pk for pk, row in backlogs.items() if row.is_least("dead")]
    if not capped:
        return {}
    cap = max(dead.COUNTED, DEAD_ROWS // len(capped))
    counted = dead.counts(using, capped, cap)
    return {pk: backlogs[pk]._replace(dead=counted[pk], dead_cap=cap) for pk in capped}


def _serving(workers: Sequence[Worker]) -> Mapping[str, list[Worker]]:
    """Return the live workers that serve each consumer, by consumer path."""
    serving: dict[str, list[Worker]] = defaultdict(list)
    for worker in workers:
        if worker.is_alive:
            for path in worker.serves:
                serving[path].append(worker)
    return serving


@dataclass(frozen=True)
class Total:
    """Sum of a count over several consumers. As text it has a plus if there may be more."""

    value: int
    is_least: bool
    """True if a count was cut off, so that there may be more."""

    def __str__(self) -> str:
        return formats.counted(self.value, is_least=self.is_least)


def total(statuses: Sequence[ConsumerStatus], count: str) -> Total:
    """Return the sum of a count, such as `ready` or `dead`, over the backlogs of consumers."""
    return Total(
        sum(getattr(status.backlog, count) for status in statuses),
        any(status.backlog.is_least(count) for status in statuses),
    )


def _waiting(using: str) -> Mapping[int, int]:
    rows = PullWaiter.objects.using(using).filter(waiting_until__gt=Now())
    sums: Any = rows.values_list("consumer_id").annotate(Sum("waiting")).order_by()
    return dict(sums)
