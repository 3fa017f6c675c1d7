"""Pulling by hand: fetch some messages, settle each."""

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar, cast

from pulljobs.client import bodies, flows
from pulljobs.client.bodies import Job, Limits, Outcome, Word
from pulljobs.client.calls import Answer, Flow
from pulljobs.client.connecting import Connection, Subscription
from pulljobs.client.errors import BadRequest, ClientError, LeaseLost
from pulljobs.client.messages import AsyncMessage, Message
from pulljobs.client.sending import AsyncClosing, AsyncSender, Closing, Sender
from pulljobs.client.strategies import REQUEUE, Delay

PATIENCE: Final = 5.0
"""Seconds for which a fetch waits by default, and for which settling is tried at least."""

M = TypeVar("M", Message, AsyncMessage)
T = TypeVar("T")


class _Desk:
    """What both sides say to the broker."""

    def __init__(self, subscription: Subscription, requeue_delay: Delay | None) -> None:
        self._path = subscription.path
        self._known: Limits | None = None
        self._delay = requeue_delay

    def requeue_delay(self, attempts: int) -> float | None:
        return None if self._delay is None else self._delay(attempts)

    def _limits(self, timeout: float) -> Flow[Limits]:
        limits = self._known
        if limits is None:
            limits = self._known = yield from flows.limits(self._path, bodies.now() + timeout)
        return limits

    def _fetch(self, n: int, timeout: float) -> Flow[list[Job]]:
        def fetch(limits: Limits) -> Flow[list[Job]]:
            return flows.fetch(self._path, limits, n, timeout)

        return self._inside_limits(fetch, timeout)

    def _end_all(self, messages: Sequence[M], outcome: Outcome) -> Flow[list[M]]:
        """Those of which nothing was said yet; what is known of some outlasts errors of others."""
        ending = [message for message in messages if not message.settled]

        def end(limits: Limits) -> Flow[None]:
            left = [message for message in ending if not message.settled]
            for some in flows.parts(left, min(flows.MOST_WORDS, limits.max_batch)):
                words = [Word(message.job, outcome) for message in some]
                until = bodies.now() + PATIENCE
                done = yield from flows.settle_all(self._path, words, until)
                for message, was_done in zip(some, done, strict=True):
                    message.settled, message.lost = True, not was_done

        yield from self._inside_limits(end, PATIENCE)
        return [message for message in ending if message.lost]

    def _inside_limits(self, do: Callable[[Limits], Flow[T]], timeout: float) -> Flow[T]:
        """Limits are read again, once, where the broker refuses what had been inside of them."""
        before = yield from self._limits(timeout)
        try:
            return (yield from do(before))
        except BadRequest:
            self._known = None
            after = yield from self._limits(timeout)
            if after == before:
                raise
        return (yield from do(after))


class PullConsumer(Closing, _Desk):
    """Pulls for one consumer from one broker. Thread-safe; close it, or use it as a context."""

    def __init__(
        self,
        base_url: str,
        subscription: Subscription,
        *,
        requeue_delay: Delay | None = REQUEUE,
        connection: Connection | None = None,
    ) -> None:
        super().__init__(subscription, requeue_delay)
        self._sender = Sender(base_url, subscription.tokens, connection or Connection())

    def fetch(self, n: int = 1, timeout: float = PATIENCE) -> list[Message]:
        """Up to so many: what is there at once, else what comes within so many seconds."""
        jobs = self._sender.run(self._fetch(n, timeout))
        return [Message(job, self) for job in jobs]

    def next(self, timeout: float = PATIENCE) -> Message | None:
        """One, if one comes within so many seconds."""
        return next(iter(self.fetch(1, timeout)), None)

    def __iter__(self) -> Iterator[Message]:
        """One after the other, without end."""
        while True:
            yield from self.fetch(1, self.limits().max_expires)

    def ack_all(self, messages: Sequence[Message]) -> list[Message]:
        """In as few requests as can be; those whose lease was lost."""
        return self._sender.run(self._end_all(messages, Outcome.DELIVERED))

    def release_all(self, messages: Sequence[Message]) -> list[Message]:
        """Back at once, as if never pulled; likewise."""
        return self._sender.run(self._end_all(messages, Outcome.RELEASE))

    def info(self) -> dict[str, Any]:
        """How the consumer stands: counts and limits, as `info` of the HTTP API tells them."""
        return _told(self._sender.run(flows.info(self._path, bodies.now() + PATIENCE)))

    def limits(self, timeout: float = PATIENCE) -> Limits:
        """What the broker lets a pull ask for; asked once, and tried for so many seconds."""
        return self._sender.run(self._limits(timeout))

    def settle(self, message: Message, word: Word) -> None:
        """For the message: tell the broker now; tried while the lease lasts."""
        try:
            self._sender.run(flows.settle(self._path, word, _patience(message)))
        except ClientError as error:
            _failed(message, error)
            raise

    def renew(self, message: Message, seconds: float | None) -> float:
        """For the message likewise."""
        try:
            flow = flows.renew(self._path, message.job, seconds, _patience(message))
            left = self._sender.run(flow)
        except LeaseLost as error:
            _failed(message, error)
            raise
        message.deadline = bodies.now() + left
        return left

    def done(self) -> None:
        return None


class AsyncPullConsumer(AsyncClosing, _Desk):
    """The same, asynchronous; for one event loop."""

    def __init__(
        self,
        base_url: str,
        subscription: Subscription,
        *,
        requeue_delay: Delay | None = REQUEUE,
        connection: Connection | None = None,
    ) -> None:
        super().__init__(subscription, requeue_delay)
        self._sender = AsyncSender(base_url, subscription.tokens, connection or Connection())

    async def fetch(self, n: int = 1, timeout: float = PATIENCE) -> list[AsyncMessage]:
        jobs = await self._sender.run(self._fetch(n, timeout))
        return [AsyncMessage(job, self) for job in jobs]

    async def next(self, timeout: float = PATIENCE) -> AsyncMessage | None:
        return next(iter(await self.fetch(1, timeout)), None)

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        while True:
            for message in await self.fetch(1, (await self.limits()).max_expires):
                yield message

    async def ack_all(self, messages: Sequence[AsyncMessage]) -> list[AsyncMessage]:
        return await self._sender.run(self._end_all(messages, Outcome.DELIVERED))

    async def release_all(self, messages: Sequence[AsyncMessage]) -> list[AsyncMessage]:
        return await self._sender.run(self._end_all(messages, Outcome.RELEASE))

    async def info(self) -> dict[str, Any]:
        return _told(await self._sender.run(flows.info(self._path, bodies.now() + PATIENCE)))

    async def limits(self, timeout: float = PATIENCE) -> Limits:
        return await self._sender.run(self._limits(timeout))

    async def settle(self, message: AsyncMessage, word: Word) -> None:
        try:
            await self._sender.run(flows.settle(self._path, word, _patience(message)))
        except ClientError as error:
            _failed(message, error)
            raise

    async def renew(self, message: AsyncMessage, seconds: float | None) -> float:
        try:
            flow = flows.renew(self._path, message.job, seconds, _patience(message))
            left = await self._sender.run(flow)
        except LeaseLost as error:
            _failed(message, error)
            raise
        message.deadline = bodies.now() + left
        return left

    async def done(self) -> None:
        return None


def _told(answer: Answer) -> dict[str, Any]:
    return cast("dict[str, Any]", answer.json())


def _patience(message: Message | AsyncMessage) -> float:
    return max(message.deadline, bodies.now() + PATIENCE)


def _failed(message: Message | AsyncMessage, error: ClientError) -> None:
    """What could not be said may be said again; what is lost stays so."""
    message.lost = isinstance(error, LeaseLost)
    message.settled = message.lost
