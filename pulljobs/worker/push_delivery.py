"""Push delivery: job pools of push consumers, which POST their jobs on the event loop."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from pulljobs.conf import Settings
from pulljobs.engine import tracing
from pulljobs.engine.run_times import RunTime
from pulljobs.errors import Retry
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Consumer
from pulljobs.webhooks.requests import Endpoint, NoEndpoint, Origin, endpoint_of
from pulljobs.worker.event_loop import EventLoop, LoopTasks
from pulljobs.worker.executor import aperform
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.runs import NO_SLOT, CancelReason

if TYPE_CHECKING:
    from pulljobs.webhooks.delivery import PushSender

SWEEP: Final = 10.0


@dataclass(slots=True, eq=False)
class DeliveryCount:
    """Count of the deliveries under way, which is kept without a lock.

    Only the fetcher counts `begun`, and only the event loop counts `ended`.
    """

    begun: int = 0
    ended: int = 0

    @property
    def at_work(self) -> int:
        return self.begun - self.ended


class PushDelivery:
    """Job pools of all push consumers, and the deliveries that they have under way.

    Each consumer may always deliver one job, and more as far as the limits of pushes allow.
    """

    def __init__(
        self,
        limits: Settings,
        loop: EventLoop,
        buffer: ResultBuffer,
        on_room: "Callable[[PushPool], None]",
    ) -> None:
        """`on_room` is called on the loop with the pool that has ended a delivery."""
        self.limits, self.closing = limits, False
        self.all, self.hosts = DeliveryCount(), defaultdict[Origin, DeliveryCount](DeliveryCount)
        self.pools: dict[int, PushPool] = {}
        """Pools by consumer id."""
        self._loop, self.on_room = loop, on_room
        self._tasks = LoopTasks(loop, buffer)
        self._buffer = buffer
        self._is_in_use = False

    def pool(self, consumer: Consumer) -> "PushPool":
        """Return the pool of a consumer. From now on it delivers by the fields of this row."""
        if not self._is_in_use:
            self._is_in_use = True
            self._loop.call(self._sweep)
        pool = self.pools.setdefault(consumer.pk, PushPool(self))
        pool.serve(consumer)
        return pool

    def keep(self, consumer_ids: Set[int]) -> None:
        """Forget the pools of all other consumers. Their deliveries under way go on."""
        for id in self.pools.keys() - consumer_ids:
            del self.pools[id]

    async def send(self, endpoint: Endpoint, job: ClaimedJob) -> None:
        """POST the job, and raise `Retry` unless it was accepted."""
        await self._sender.send(endpoint, job)

    def run(self, job: ClaimedJob, on_end: Callable[[], None]) -> None:
        """Deliver a job on the loop, and call `on_end` afterwards. Any thread may call this.

        After `release_waiting`, or if the job may not start any more, it is released instead.
        """
        self._loop.call(self._run, job, on_end)

    def release_waiting(self) -> None:
        """Release, from now on, every job that has not started."""
        self.closing = True

    def join(self, deadline: float) -> bool:
        """Wait until all deliveries have an outcome. Return False at the monotonic `deadline`."""
        return self._tasks.join(deadline)

    def cancel_all(self, reason: CancelReason) -> None:
        self._tasks.cancel_all(reason)

    def _run(self, job: ClaimedJob, on_end: Callable[[], None]) -> None:
        if self.closing or job.is_late_at(time.monotonic()):
            self._buffer.release(job)
            on_end()
        else:
            self._tasks.start(job, NO_SLOT, aperform(job), on_end)

    @cached_property
    def _sender(self) -> "PushSender":
        """Sender of POSTs, created on the event loop when the first push consumer needs it.

        Its packages take a third of the memory of Django, which other workers save.
        """
        from pulljobs.webhooks.delivery import PushSender

        return PushSender(self.limits)

    def _sweep(self) -> None:
        self._sweeping = asyncio.ensure_future(self._sender.close_idle())
        self._loop.later(SWEEP, self._sweep)


class PushPool:
    """Job pool of one push consumer."""

    reports_room = True
    handler: Handler

    def __init__(self, delivery: PushDelivery) -> None:
        self._delivery = delivery
        self.own_count = self.host_count = DeliveryCount()
        self.total_count = delivery.all

    def serve(self, consumer: Consumer) -> None:
        """Deliver later jobs to the endpoint of this row, or retry them if that is unusable.

        Claimed jobs keep their endpoint.
        """
        try:
            endpoint = endpoint_of(consumer)
        except NoEndpoint as error:
            self.host_count, deliver = DeliveryCount(), _refusing(str(error))
        else:
            self.host_count = self._delivery.hosts[endpoint.origin]
            deliver = tracing.delivery(_delivering(self._delivery, endpoint), consumer.names)
        self.handler = Handler(
            channel=consumer.channel.name, consumer=consumer.name, function=deliver
        )

    def room(self, run_time: RunTime) -> int:
        """Return how many more jobs may be claimed: at least 1 while this pool delivers none."""
        delivery, limits = self._delivery, self._delivery.limits
        shared = limits.PUSH_CONCURRENCY - len(delivery.pools) - self.total_count.at_work
        of_host = limits.PUSH_PER_HOST - self.host_count.at_work
        room = min(limits.PUSH_PER_CONSUMER - self.own_count.at_work, shared, of_host)
        return max(room, 0 if self.own_count.at_work else 1)

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        """Start to POST the jobs of a claim. Only the fetcher's thread calls this."""
        counts = (self.own_count, self.host_count, self.total_count)
        for count in counts:
            count.begun += len(jobs)

        def end() -> None:
            for count in counts:
                count.ended += 1
            self._delivery.on_room(self)

        for job in jobs:
            self._delivery.run(job, end)


DeliveryFunction = Callable[[ClaimedJob], Coroutine[None, None, None]]


def _delivering(delivery: PushDelivery, endpoint: Endpoint) -> DeliveryFunction:
    async def deliver(job: ClaimedJob) -> None:
        await delivery.send(endpoint, job)

    return deliver


def _refusing(reason: str) -> DeliveryFunction:
    async def refuse(job: ClaimedJob) -> None:
        raise Retry(reason=reason)

    return refuse
