"""Session of a `Consumer`: all that exists from its first request to its last."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from concurrent import futures
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pulljobs.client import log
from pulljobs.client.argument_checks import check_counts, check_hooks, check_seconds
from pulljobs.client.bodies import Settlement
from pulljobs.client.broker import Broker
from pulljobs.client.connecting import Connection, Subscription, without_login
from pulljobs.client.discovery import Discovery
from pulljobs.client.errors import Unreachable
from pulljobs.client.flows import GRACE
from pulljobs.client.handling import Ending, Handler, Handling, ends_task
from pulljobs.client.link import Link
from pulljobs.client.messages import AsyncMessage, Message, Received
from pulljobs.client.pools import Pool, TaskPool, ThreadPool
from pulljobs.client.room import Room
from pulljobs.client.sending import AsyncSender
from pulljobs.client.strategies import RECONNECT, Backoff, Delay, guarded
from pulljobs.engine.circuit import Circuit
from pulljobs.errors import ConfigurationError

T = TypeVar("T")

FLUSH_SECONDS: Final = 10.0
"""Longest time for the last outcomes when the consumer stops, because a broker may be away."""
POLL_SECONDS: Final = 0.01
"""Seconds between two checks, during a stop, for the end of all handlers or outcomes."""


@dataclass(frozen=True, kw_only=True)
class ConsumerOptions:
    """Arguments of a `Consumer`, checked."""

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

    def __post_init__(self) -> None:
        if not self.base_urls and not self.lookup_urls:
            raise ConfigurationError(
                "There is no broker to pull from: give base_urls or lookup_urls."
            )
        check_counts(1, concurrency=self.concurrency)
        if not isinstance(self.backoff, Backoff):
            raise ConfigurationError(f"backoff must be a Backoff, not {self.backoff!r}.")
        check_hooks(on_stop=self.on_stop, reconnect=self.reconnect)
        check_seconds("lookup_interval", self.lookup_interval, may_be_zero=False)
        check_seconds("flush_interval", self.flush_interval)
        check_seconds("graceful_timeout", self.graceful_timeout)


class Session:
    """Brokers, handler pool and tasks of a running consumer, and the steps of its stop."""

    def __init__(
        self, options: ConsumerOptions, limit: int, counts: Counter[str], consumer: object
    ) -> None:
        how = options.backoff
        strategy = guarded("The strategy of backoff", how.strategy, Backoff().strategy)
        self._options, self._counts, self._consumer = options, counts, consumer
        self._loop = asyncio.get_running_loop()
        self.room = Room(limit, Circuit(how.initial, how.longest, how.after, strategy))
        self._brokers: dict[str, Broker] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._error: BaseException | None = None
        self._pool = _make_pool(options.handling, options.concurrency)
        self._discovery = Discovery(
            options.lookup_urls,
            options.subscription,
            options.connection,
            interval=options.lookup_interval,
            on_address=self._connect,
        )

    @property
    def is_starved(self) -> bool:
        return any(broker.is_starved for broker in list(self._brokers.values()))

    async def run(self) -> None:
        for url in self._options.base_urls:
            self._add(url, guarded("reconnect", self._options.reconnect, RECONNECT))
        if self._options.lookup_urls:
            self._start(self._discovery.poll_forever())
        try:
            await self._stopping.wait()
        finally:  # A task that is cancelled stops like this, too, or its jobs would be charged.
            self.stop()
            try:
                await self._end()
            finally:
                await self._close()
        if self._error is not None:
            raise self._error

    def stop(self) -> None:
        self.room.stop()
        self._stopping.set()

    def call(self, function: Callable[..., None], *args: Any) -> None:
        """Schedule a call on the event loop, from any thread. Do nothing if the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def _connect(self, url: str) -> None:
        if url not in self._brokers:
            log.pulling_from(without_login(url))
            self._add(url, None)
        self._brokers[url].link.connect()

    def _add(self, url: str, again: Delay | None) -> None:
        options = self._options
        is_async = options.handling.is_async
        share = self.room.share()

        def changed(is_up: bool) -> None:
            share.changed(is_up=is_up)
            self.room.wake()

        sender = AsyncSender(url, options.subscription.tokens, options.connection)
        broker = self._brokers[url] = Broker(
            link=Link(sender, url, options.subscription.path, again, changed),
            room=self.room,
            share=share,
            hand_out=self._pool.put,
            message_of=AsyncMessage if is_async else Message,
            requeue_delay=options.requeue_delay,
            flush_interval=options.flush_interval,
            counts=self._counts,
            auto_renew=options.auto_renew,
        )
        broker.recipient = AwaitedRecipient(broker) if is_async else ThreadRecipient(broker)
        work = (
            broker.pull_forever(),
            broker.outbox.flush_forever(),
            broker.outbox.settle_locked_forever(),
            self._keep(broker),
        )
        self._start(self._look_after(url, broker, list(map(self._start, work))))
        broker.link.connect()

    def _start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._error = self._error or error
            self.stop()

    async def _look_after(
        self, url: str, broker: Broker, tasks: "Iterable[asyncio.Task[None]]"
    ) -> None:
        """Check the leases of a broker until it is forgotten, and then end its tasks.

        Otherwise a client that runs for weeks would keep each server that a lookup ever named.
        """
        while not broker.is_forgotten:
            await asyncio.sleep(broker.look_seconds)
            broker.release_ending()
            broker.note_ends()
            broker.forget_expired(set(self._pool.running))
            broker.forfeit_if_lost()
        log.forgotten(broker.link.shown_url)
        del self._brokers[url]
        for task in tasks:
            task.cancel()
        broker.outbox.lose_all()
        self.room.shares.remove(broker.share)
        await broker.link.close()

    async def _keep(self, broker: Broker) -> None:
        """Renew leases of a broker when they are due, in a task of its own.

        A renewal waits while the broker is away. The other checks of leases must not wait for it.
        """
        while True:
            await asyncio.sleep(broker.look_seconds)
            if broker.link.is_up:
                await broker.keep()

    async def _end(self) -> None:
        """Stop: release waiting messages, let handlers end, and send the last outcomes."""
        log.stopping(self.room.held)
        _give_back(self._pool.take_back())
        await self._until(lambda: not self._pool.running, self._options.graceful_timeout)
        _give_back(await self._pool.cancel())
        if self._pool.running:
            log.not_ended(len(self._pool.running))
        if self._options.on_stop is not None:
            await self._call_on_stop(self._options.on_stop)
        for broker in self._brokers.values():
            _give_back(broker.open)
        await self._until(lambda: self._is_flushed() or not self._tasks, FLUSH_SECONDS)
        if self.room.held:
            log.left_behind(self.room.held)

    async def _call_on_stop(self, on_stop: Handler) -> None:
        """Call `on_stop`, on a thread if the handler is synchronous. `run` raises its error."""
        try:
            if self._options.handling.is_async:
                pending = on_stop(self._consumer)
            else:
                pending = await asyncio.to_thread(on_stop, self._consumer)
            if isinstance(pending, Awaitable):
                await pending
        except BaseException as error:
            if ends_task(error):
                raise
            log.stop_failed(log.describe(error))
            self._error = self._error or error

    def _is_flushed(self) -> bool:
        for broker in self._brokers.values():
            broker.outbox.flush_now()
        asking = any(share.asked for share in self.room.shares)
        return not asking and all(broker.outbox.is_flushed for broker in self._brokers.values())

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


class BatchRecipient:
    """Base of the receivers of handlers' outcomes. One request sends many outcomes to a broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def requeue_delay(self, attempts: int) -> float | None:
        delay = self.broker.requeue_delay
        return None if delay is None else delay(attempts)


class ThreadRecipient(BatchRecipient):
    """Receiver for handlers on threads, which wait while the event loop renews a lease."""

    def settle(self, message: Received[None, float], settlement: Settlement) -> None:
        self.broker.settle(message, settlement)

    def renew(self, message: Received[None, float], seconds: float | None) -> float:
        patience = self.broker.patience(message) + GRACE
        return self._wait_for(self.broker.renew(message, seconds), patience)

    def renew_before_start(self, message: Received[None, float]) -> None:
        """Renew the lease of a message that has waited, before its handler begins."""
        with suppress(Unreachable):
            self._wait_for(self.broker.renew_before_start(message), 2 * GRACE)

    def _wait_for(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """Run a coroutine on the event loop and wait for its result.

        Raise Unreachable after `seconds` without a result, or if the loop has ended.
        """
        try:
            future = asyncio.run_coroutine_threadsafe(work, self.broker.loop)
        except RuntimeError as error:
            work.close()
            raise Unreachable("The client has ended: nothing was renewed.") from error
        try:
            return future.result(seconds)
        except (futures.TimeoutError, futures.CancelledError) as error:
            future.cancel()
            raise Unreachable("The client is busy or has ended: nothing was renewed.") from error

    def done(self) -> None:
        return None


class AwaitedRecipient(BatchRecipient):
    """Receiver of outcomes and renewals of async handlers, which await the results."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._done: asyncio.Future[None] = broker.loop.create_future()
        self._done.set_result(None)

    def settle(self, message: Any, settlement: Settlement) -> "asyncio.Future[None]":
        self.broker.settle(message, settlement)
        return self._done

    async def renew(self, message: Any, seconds: float | None) -> float:
        return await self.broker.renew(message, seconds)

    def done(self) -> "asyncio.Future[None]":
        return self._done


def _make_pool(handling: Handling, concurrency: int) -> Pool:
    if handling.is_async:
        return TaskPool(handling, concurrency, _begin_async, _end)
    return ThreadPool(handling, concurrency, _begin, _end)


def _give_back(messages: Iterable[Any]) -> None:
    """Release messages, whether or not a handler still runs."""
    for message in list(messages):
        message.give_back(is_running=True)


def _begin(message: Any) -> bool:
    broker: Broker = message.recipient.broker
    if message.has_waited and not broker.auto_renew:
        message.recipient.renew_before_start(message)
    return broker.begin(message)


async def _begin_async(message: Any) -> bool:
    broker: Broker = message.recipient.broker
    if message.has_waited and not broker.auto_renew:
        await broker.renew_before_start(message)
    return broker.begin(message)


def _end(message: Any, ending: Ending | None) -> None:
    message.recipient.broker.end(message, ending)
