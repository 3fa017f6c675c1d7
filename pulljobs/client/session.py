"""One run of a `Consumer`, from the first request to the last."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from pulljobs.client import log
from pulljobs.client.bodies import Outcome, Word
from pulljobs.client.broker import Broker
from pulljobs.client.connecting import Connection, Subscription
from pulljobs.client.discovery import Discovery
from pulljobs.client.handling import Handler, Handling, Verdict, ends_task
from pulljobs.client.link import Link
from pulljobs.client.messages import AsyncMessage, Message, Received
from pulljobs.client.pools import Pool, TaskPool, ThreadPool
from pulljobs.client.room import Room
from pulljobs.client.sending import AsyncSender
from pulljobs.client.strategies import RECONNECT, Backoff, Delay, guarded
from pulljobs.engine.circuit import Circuit

LOOK_SECONDS: Final = 0.5
FLUSH_SECONDS: Final = 10.0
"""For the last flush: a broker may be away."""
POLL_SECONDS: Final = 0.01
"""Between looks at whether all has ended."""


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The arguments of a `Consumer`."""

    handling: Handling
    base_urls: list[str]
    subscription: Subscription
    concurrency: int
    on_stop: Handler | None
    requeue_delay: Delay | None
    backoff: Backoff
    reconnect: Delay
    auto_renew: bool
    lookup_urls: list[str]
    lookup_interval: float
    flush_interval: float
    graceful_timeout: float
    connection: Connection


class Session:
    def __init__(self, terms: Terms, limit: int, counts: Counter[str], consumer: object) -> None:
        how = terms.backoff
        strategy = guarded("The strategy of backoff", how.strategy, Backoff().strategy)
        self._terms, self._counts, self._consumer = terms, counts, consumer
        self._loop = asyncio.get_running_loop()
        self.room = Room(limit, Circuit(how.initial, how.longest, how.after, strategy))
        self._brokers: dict[str, Broker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._error: BaseException | None = None
        make = TaskPool if terms.handling.is_async else ThreadPool
        self._pool: Pool = make(terms.handling, terms.concurrency, _begin, _end)
        self._discovery = Discovery(
            terms.lookup_urls,
            terms.subscription,
            terms.connection,
            interval=terms.lookup_interval,
            found=self._found,
        )

    @property
    def is_starved(self) -> bool:
        return any(broker.is_starved for broker in list(self._brokers.values()))

    async def run(self) -> None:
        for url in self._terms.base_urls:
            self._add(url, guarded("reconnect", self._terms.reconnect, RECONNECT))
        if self._terms.lookup_urls:
            self._start(self._discovery.poll_forever())
        try:
            await self._stopping.wait()
            await self._end()
        finally:
            await self._close()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self.room.stop()
        self._stopping.set()

    def call(self, function: Callable[..., None], *args: Any) -> None:
        """On the event loop, from any thread; in vain when that is over."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _found(self, url: str) -> None:
        if url not in self._brokers:
            log.found(url)
            self._add(url, None)
        self._brokers[url].link.connect()

    def _add(self, url: str, again: Delay | None) -> None:
        terms = self._terms
        share = self.room.share()

        def changed(is_up: bool) -> None:
            share.changed(is_up=is_up)
            self.room.changed()

        sender = AsyncSender(url, terms.subscription.tokens, terms.connection)
        broker = self._brokers[url] = Broker(
            Link(sender, url, terms.subscription.path, again, changed),
            terms.subscription.path,
            self.room,
            share,
            self._pool.put,
            AsyncMessage if terms.handling.is_async else Message,
            terms.requeue_delay,
            terms.flush_interval,
            self._counts,
        )
        is_async = terms.handling.is_async
        broker.desk = AwaitedDesk(broker) if is_async else ThreadDesk(broker)
        self._start(broker.pull_forever())
        self._start(broker.flush_forever())
        self._start(self._look_after(broker))
        if terms.auto_renew:
            self._start(self._keep(broker))
        broker.link.connect()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
            self.stop()

    async def _look_after(self, broker: Broker) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            broker.forget_expired(set(self._pool.running))
            broker.forfeit_if_lost()

    async def _keep(self, broker: Broker) -> None:
        """Beside the looks, for it waits while the broker is away."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if broker.link.is_up:
                await broker.keep(broker.link.limits.lease_seconds / 2)

    async def _end(self) -> None:
        """Give back what waits, let end what runs, flush."""
        log.stopping(self.room.held)
        self._release(self._pool.take_back())
        await self._until(lambda: not self._pool.running, self._terms.graceful_timeout)
        self._release(await self._pool.cancel())
        if self._terms.on_stop is not None:
            await self._say_stop(self._terms.on_stop)
        running = set(self._pool.running)
        for broker in self._brokers.values():
            self._release([one for one in list(broker.open) if one not in running])
        await self._until(self._is_flushed, FLUSH_SECONDS)
        if self.room.held:
            log.left_behind(self.room.held)

    async def _say_stop(self, on_stop: Handler) -> None:
        """On a thread if handlers are plain: it may take its time. An error of it loses nothing."""
        try:
            if self._terms.handling.is_async:
                told = on_stop(self._consumer)
            else:
                told = await asyncio.to_thread(on_stop, self._consumer)
            if isinstance(told, Awaitable):
                await told
        except BaseException as error:
            if ends_task(error):
                raise
            log.stop_failed(error)
            self._error = self._error or error

    def _release(self, messages: list[Any]) -> None:
        for message in messages:
            message.say(Outcome.RELEASE)

    def _is_flushed(self) -> bool:
        for broker in self._brokers.values():
            broker.hurry()
        asking = any(share.asked for share in self.room.shares)
        return not asking and all(broker.is_flushed for broker in self._brokers.values())

    async def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not condition():
                    await asyncio.sleep(POLL_SECONDS)

    async def _close(self) -> None:
        await self._pool.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._discovery.close()
        for broker in self._brokers.values():
            await broker.link.close()
        log.stopped(self._counts)


class Desk:
    """Where the words of a broker's messages go: into its next batch."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def requeue_delay(self, attempts: int) -> float | None:
        delay = self.broker.requeue
        return None if delay is None else delay(attempts)


class ThreadDesk(Desk):
    def settle(self, message: Received[None, float], word: Word) -> None:
        self.broker.settle(message, word)

    def renew(self, message: Received[None, float], seconds: float | None) -> float:
        renewed = self.broker.renew(message, seconds)
        return asyncio.run_coroutine_threadsafe(renewed, self.broker.loop).result()

    def done(self) -> None:
        return None


class AwaitedDesk(Desk):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._done: asyncio.Future[None] = broker.loop.create_future()
        self._done.set_result(None)

    def settle(self, message: Any, word: Word) -> "asyncio.Future[None]":
        self.broker.settle(message, word)
        return self._done

    async def renew(self, message: Any, seconds: float | None) -> float:
        return await self.broker.renew(message, seconds)

    def done(self) -> "asyncio.Future[None]":
        return self._done


def _begin(message: Any) -> bool:
    return bool(message.desk.broker.begin(message))


def _end(message: Any, verdict: Verdict | None) -> None:
    message.desk.broker.end(message, verdict)
