"""Brokers of the suite, one in memory and the example project in a process, and its clients."""

import asyncio
import inspect
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import httpx
from django.utils import timezone

from pulljobs import pulling
from pulljobs.client import (
    AsyncProducer,
    AsyncPullConsumer,
    Connection,
    Consumer,
    Producer,
    PullConsumer,
    Subscription,
)
from pulljobs.models import ArchivedJob, Job
from pulljobs.models import Consumer as ConsumerRow
from tests.client.broker import FakeBroker
from tests.client.names import SHOP, SUBSCRIPTION
from tests.sessions import pass_time


class BrokerWorld(Protocol):
    base_url: str

    def connection(self, *, is_async: bool = True) -> Connection: ...

    def states(self) -> Counter[str]:
        """Return the number of jobs in each state."""
        ...

    def error(self) -> str:
        """Return the error text of the only job."""
        ...

    def expire(self) -> None:
        """End the leases of held jobs, and reap them."""
        ...

    def pause(self) -> None: ...


class Mocked:
    base_url = "http://broker"

    def __init__(self) -> None:
        self.broker = FakeBroker()

    def connection(self, *, is_async: bool = True, **options: Any) -> Connection:
        answer: Any = self.broker.answer_async if is_async else self.broker.answer
        return Connection(transport=httpx.MockTransport(answer), **options)

    def states(self) -> Counter[str]:
        return Counter(self.broker.states())

    def error(self) -> str:
        return self.broker.jobs[0].error

    def expire(self) -> None:
        for job in self.broker.jobs:
            job.leased_until = 0.0
        self.broker._expire(1.0)

    def pause(self) -> None:
        self.broker.paused = True


class Live:
    def __init__(self, base_url: str) -> None:
        self.base_url = base_url

    def connection(self, *, is_async: bool = True, **options: Any) -> Connection:
        return Connection(**options)

    def states(self) -> Counter[str]:
        live = Counter(Job.objects.values_list("state", flat=True))
        live["DELIVERED"] = ArchivedJob.objects.filter(state="DELIVERED").count()
        return +live

    def error(self) -> str:
        return str(Job.objects.get().error)

    def expire(self) -> None:
        pass_time()
        while pulling.reap():
            pass
        Job.objects.filter(state="QUEUED").update(available_at=timezone.now())

    def pause(self) -> None:
        ConsumerRow.objects.update(paused_until=timezone.now() + timedelta(hours=1))


class Blocking:
    """Wrapper that gives the asynchronous client the methods of the synchronous one."""

    def __init__(self, inner: Any, run: Callable[[Any], Any]) -> None:
        self._inner, self._run = inner, run

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value
        return lambda *args, **options: self._wrapped(value(*map(_bare, args), **options))

    def _wrapped(self, value: Any) -> Any:
        if inspect.isawaitable(value):
            value = self._run(value)
        if isinstance(value, list):
            return [self._wrapped(element) for element in value]
        return Blocking(value, self._run) if hasattr(value, "in_progress") else value


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(element) for element in value]
    return value._inner if isinstance(value, Blocking) else value


class Side:
    """Synchronous or asynchronous client, with the same methods for the tests of the suite."""

    def __init__(self, world: BrokerWorld, *, is_async: bool) -> None:
        self.world, self.is_async = world, is_async
        self._runner = asyncio.Runner()
        self._open: list[Any] = []

    def consumer(self, subscription: Subscription = SUBSCRIPTION, **options: Any) -> Any:
        connection = self.world.connection(is_async=self.is_async)
        made = AsyncPullConsumer if self.is_async else PullConsumer
        return self._opened(made, subscription, connection=connection, **options)

    def producer(self, **options: Any) -> Any:
        connection = options.pop("connection", self.world.connection(is_async=self.is_async))
        made = AsyncProducer if self.is_async else Producer
        return self._opened(made, "orders", "shop", connection=connection, **{**SHOP, **options})

    def run(self, handle: Callable[[Any], Any], **options: Any) -> Consumer:
        """Run a `Consumer` to its end, with `handle` as a plain or an async handler."""

        async def handle_async(message: Any) -> None:
            pending = handle(message)
            if inspect.isawaitable(pending):
                await pending

        consumer = Consumer(
            handle_async if self.is_async else handle,
            self.world.base_url,
            subscription=SUBSCRIPTION,
            connection=self.world.connection(),
            **options,
        )
        self.running = consumer
        consumer.run()
        return consumer

    def close(self) -> None:
        for client in self._open:
            client.close()
        self._runner.close()

    def _opened(self, make: Any, *args: Any, **options: Any) -> Any:
        client = make(self.world.base_url, *args, **options)
        client = Blocking(client, self._runner.run) if self.is_async else client
        self._open.append(client)
        return client
