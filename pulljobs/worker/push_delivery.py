"""The lanes of push consumers: what this process delivers at once, and to whom."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence, Set
from dataclasses import dataclass
from typing import Final

from pulljobs.conf import Settings
from pulljobs.engine import tracing
from pulljobs.errors import Retry
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Consumer
from pulljobs.webhooks.delivery import Origin, Sender
from pulljobs.webhooks.requests import Endpoint, NoEndpoint, endpoint_of
from pulljobs.worker.event_loop import EventLoop, Tasks
from pulljobs.worker.executor import aperform
from pulljobs.worker.result_buffer import Outbox
from pulljobs.worker.runs import NOWHERE, Ended

SWEEP: Final = 10.0


@dataclass(slots=True, eq=False)
class Tally:
    """What is at work: counted up by the fetcher only and down by the loop only, so unlocked."""

    begun: int = 0
    ended: int = 0

    @property
    def now(self) -> int:
        return self.begun - self.ended


class Pushing:
    """Delivers one job at once to each consumer, and more while `PUSH_CONCURRENCY` has room."""

    def __init__(
        self,
        limits: Settings,
        loop: EventLoop,
        outbox: Outbox,
        on_room: "Callable[[PushLane], None]",
    ) -> None:
        self.limits, self.closing = limits, False
        self.all, self.hosts = Tally(), defaultdict[Origin, Tally](Tally)
        self.lanes: dict[int, PushLane] = {}
        """By consumer."""
        self._loop, self.on_room = loop, on_room
        self._tasks = Tasks(loop, outbox)
        self._outbox = outbox
        self._sender = Sender(limits)
        loop.call(self._sweep)

    def lane(self, consumer: Consumer) -> "PushLane":
        """As its row is now; what runs already ends as it began."""
        lane = self.lanes.setdefault(consumer.pk, PushLane(self))
        lane.serve(consumer)
        return lane

    def keep(self, consumer_ids: Set[int]) -> None:
        """Forget the others."""
        for id in self.lanes.keys() - consumer_ids:
            del self.lanes[id]

    async def send(self, endpoint: Endpoint, job: ClaimedJob) -> None:
        await self._sender.send(endpoint, job)

    def run(self, job: ClaimedJob, on_end: Callable[[], None]) -> None:
        """From any thread."""
        self._loop.call(self._run, job, on_end)

    def give_back(self) -> None:
        """From now on release what has not begun."""
        self.closing = True

    def join(self, deadline: float) -> bool:
        return self._tasks.join(deadline)

    def cancel_all(self, why: Ended) -> None:
        self._tasks.cancel_all(why)

    def _run(self, job: ClaimedJob, on_end: Callable[[], None]) -> None:
        if self.closing or job.is_late_at(time.monotonic()):
            self._outbox.release(job)
            on_end()
        else:
            self._tasks.start(job, NOWHERE, aperform(job), on_end)

    def _sweep(self) -> None:
        self._sweeping = asyncio.ensure_future(self._sender.close_idle())
        self._loop.later(SWEEP, self._sweep)


class PushLane:
    """Of one consumer."""

    calls_back = True
    handler: Handler

    def __init__(self, pushing: Pushing) -> None:
        self._pushing = pushing
        self.tally = self.host = Tally()
        self.everybody = pushing.all

    def serve(self, consumer: Consumer) -> None:
        try:
            endpoint = endpoint_of(consumer)
        except NoEndpoint as error:
            self.host, deliver = Tally(), _refusal(str(error))
        else:
            self.host = self._pushing.hosts[endpoint.origin]
            place = (consumer.channel.name, consumer.name)
            deliver = tracing.delivery(_delivery(self._pushing, endpoint), place)
        self.handler = Handler(
            channel=consumer.channel.name, consumer=consumer.name, function=deliver
        )

    def room(self) -> int:
        """Claims are bounded by it, so what a slow consumer can't take yet stays in the queue."""
        pushing, limits = self._pushing, self._pushing.limits
        shared = limits.PUSH_CONCURRENCY - len(pushing.lanes) - self.everybody.now
        of_host = limits.PUSH_PER_HOST - self.host.now
        room = min(limits.PUSH_PER_CONSUMER - self.tally.now, shared, of_host)
        return max(room, 0 if self.tally.now else 1)

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        tallies = (self.tally, self.host, self.everybody)
        for tally in tallies:
            tally.begun += len(jobs)

        def end() -> None:
            for tally in tallies:
                tally.ended += 1
            self._pushing.on_room(self)

        for job in jobs:
            self._pushing.run(job, end)


Delivery = Callable[[ClaimedJob], Coroutine[None, None, None]]


def _delivery(pushing: Pushing, endpoint: Endpoint) -> Delivery:
    async def deliver(job: ClaimedJob) -> None:
        await pushing.send(endpoint, job)

    return deliver


def _refusal(reason: str) -> Delivery:
    async def refuse(job: ClaimedJob) -> None:
        raise Retry(reason=reason)

    return refuse
