"""Consumers whose callers fetch messages on request and settle each."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, Final, TypeVar, cast

from pulljobs.client import bodies, flows, log
from pulljobs.client.argument_checks import check_counts, check_hooks, check_seconds
from pulljobs.client.bodies import Job, Limits, Outcome, Settlement, Status
from pulljobs.client.calls import Answer, Flow
from pulljobs.client.connecting import Connection, Subscription, check_subscription
from pulljobs.client.errors import BadRequest, ClientError, LeaseLost, Unreachable
from pulljobs.client.flows import Claims
from pulljobs.client.messages import AsyncMessage, Message
from pulljobs.client.sending import AsyncClosing, AsyncSender, Closing, Sender
from pulljobs.client.strategies import REQUEUE, Delay

PATIENCE: Final = 5.0
"""Seconds that a fetch waits by default, and the least for which a settlement is repeated."""

M = TypeVar("M", Message, AsyncMessage)
T = TypeVar("T")


class _PullFlows:
    """Base of PullConsumer and AsyncPullConsumer: the sequences of requests that both send."""

    def __init__(self, subscription: Subscription, requeue_delay: Delay | None) -> None:
        check_subscription(subscription)
        check_hooks(requeue_delay=requeue_delay)
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

    def _fetch(self, n: int, timeout: float, claims: Claims) -> Flow[list[Job]]:
        check_counts(1, n=n)

        # Below 0 the time is over, as for a caller that passes what is left of its own.
        check_seconds("timeout", abs(timeout) if isinstance(timeout, int | float) else timeout)

        def fetch(limits: Limits) -> Flow[list[Job]]:
            return flows.fetch(self._path, limits, n, timeout, claims)

        return self._inside_limits(fetch, timeout)

    def _give_back(self, claims: Claims, seconds: float = PATIENCE) -> Flow[None]:
        """Release the jobs of an interrupted fetch. If that fails, log it and let them expire."""
        try:
            yield from flows.give_back(self._path, self._known or Limits(), claims, seconds)
        except ClientError as error:
            log.not_given_back(error)

    def _end_all(self, messages: Sequence[M], outcome: Outcome) -> Flow[list[M]]:
        """Settle the messages that have no outcome yet. Return those whose lease was lost.

        If a request fails, those of earlier requests stay settled. Raise Unreachable at the end if
        a row stays locked.
        """
        ending = [message for message in messages if not message.settled]

        def end(limits: Limits) -> Flow[None]:
            left = [message for message in ending if not message.settled]
            for some in flows.parts(left, min(flows.MOST_OUTCOMES, limits.max_batch)):
                settlements = [Settlement(message.job, outcome) for message in some]
                until = bodies.now() + PATIENCE
                statuses = yield from flows.settle_all(self._path, settlements, until)
                for message, status in zip(some, statuses, strict=True):
                    message.settled = status is not Status.LOCKED
                    message.revoked = status not in (Status.OK, Status.LOCKED)
            if not all(message.settled for message in left):
                raise Unreachable(flows.LOCKED)

        yield from self._inside_limits(end, PATIENCE)
        return [message for message in ending if message.revoked]

    def _inside_limits(self, do: Callable[[Limits], Flow[T]], timeout: float) -> Flow[T]:
        """Run the flow that `do` makes for the broker's limits, and return its result.

        After a BadRequest, read the limits again, and repeat the flow if they changed.
        """
        before = yield from self._limits(timeout)
        try:
            return (yield from do(before))
        except BadRequest:
            self._known = None
            after = yield from self._limits(timeout)
            if after == before:
                raise
        return (yield from do(after))


class PullConsumer(Closing, _PullFlows):
    """Consumer that pulls from one broker, for any number of threads.

    Close it, or use it in a `with` block.
    """

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
        """Pull up to `n` messages that are ready, or wait `timeout` seconds for at least one.

        Return an empty list if none came. If an exception such as KeyboardInterrupt interrupts it,
        the jobs that it got are released.
        """
        claims = Claims()
        try:
            jobs = self._sender.run(self._fetch(n, timeout, claims))
        except ClientError:
            raise
        except BaseException:
            self._sender.run(self._give_back(claims, seconds=0.0))
            raise
        return [Message(job, self) for job in jobs]

    def next(self, timeout: float = PATIENCE) -> Message | None:
        """Pull a message, or return None if none comes within `timeout` seconds."""
        return next(iter(self.fetch(1, timeout)), None)

    def __iter__(self) -> Iterator[Message]:
        """Yield one message after another, for ever."""
        while True:
            yield from self.fetch(1, self.limits().max_expires)

    def ack_all(self, messages: Sequence[Message]) -> list[Message]:
        """Deliver the jobs of messages in few requests. Return messages whose lease was lost."""
        return self._sender.run(self._end_all(messages, Outcome.DELIVERED))

    def release_all(self, messages: Sequence[Message]) -> list[Message]:
        """Release messages in few requests. Return those whose lease was lost."""
        return self._sender.run(self._end_all(messages, Outcome.RELEASE))

    def info(self) -> dict[str, Any]:
        """Read the counts and limits of the consumer, as `info` of the HTTP API returns them."""
        return _content(self._sender.run(flows.info(self._path, bodies.now() + PATIENCE)))

    def limits(self, timeout: float = PATIENCE) -> Limits:
        """Return the limits for pulls, which the first call reads from the broker and keeps.

        Raise Unreachable if the broker does not answer within `timeout` seconds.
        """
        return self._sender.run(self._limits(timeout))

    def settle(self, message: Message, settlement: Settlement) -> None:
        """Send the outcome of a message, and repeat it until there is an answer or its lease ends.

        Raise LeaseLost if the lease is lost, Unreachable without an answer or if the row of the job
        stays locked.
        """
        try:
            self._sender.run(flows.settle(self._path, settlement, _patience(message)))
        except BaseException as error:
            _failed(message, error)
            raise

    def renew(self, message: Message, seconds: float | None) -> float:
        """Renew the lease of a message to `seconds` from now, or its full duration for None.

        Return the seconds left, or raise LeaseLost or Unreachable.
        """
        report = message.report
        try:
            flow = flows.renew(self._path, message.job, report, seconds, _patience(message))
            deadline = self._sender.run(flow)
        except LeaseLost as error:
            _failed(message, error)
            raise
        message.renewed(deadline, report)
        return message.remaining

    def done(self) -> None:
        """Do nothing, in place of `settle`, for a message that was settled before."""


class AsyncPullConsumer(AsyncClosing, _PullFlows):
    """Consumer that pulls from one broker, for an event loop."""

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
        self._releasing: set[asyncio.Task[None]] = set()

    async def fetch(self, n: int = 1, timeout: float = PATIENCE) -> list[AsyncMessage]:
        """Pull up to `n` messages that are ready, or wait `timeout` seconds for at least one.

        Return an empty list if none came. If it is cancelled, a task releases the jobs that it got,
        and `close` waits for that task.
        """
        claims = Claims()
        try:
            jobs = await self._sender.run(self._fetch(n, timeout, claims))
        except asyncio.CancelledError:
            if claims.jobs or claims.request_id is not None:
                task = asyncio.create_task(self._sender.run(self._give_back(claims)))
                self._releasing.add(task)
                task.add_done_callback(self._releasing.discard)
            raise
        return [AsyncMessage(job, self) for job in jobs]

    async def close(self) -> None:
        """Wait until the jobs of cancelled fetches are released, and close."""
        await asyncio.gather(*self._releasing, return_exceptions=True)
        await super().close()

    async def next(self, timeout: float = PATIENCE) -> AsyncMessage | None:
        """Pull a message, or return None if none comes within `timeout` seconds."""
        return next(iter(await self.fetch(1, timeout)), None)

    async def __aiter__(self) -> AsyncIterator[AsyncMessage]:
        while True:
            for message in await self.fetch(1, (await self.limits()).max_expires):
                yield message

    async def ack_all(self, messages: Sequence[AsyncMessage]) -> list[AsyncMessage]:
        """Deliver the jobs of messages in few requests. Return messages whose lease was lost."""
        return await self._sender.run(self._end_all(messages, Outcome.DELIVERED))

    async def release_all(self, messages: Sequence[AsyncMessage]) -> list[AsyncMessage]:
        """Release messages in few requests. Return those whose lease was lost."""
        return await self._sender.run(self._end_all(messages, Outcome.RELEASE))

    async def info(self) -> dict[str, Any]:
        """Read the counts and limits of the consumer, as `info` of the HTTP API returns them."""
        return _content(await self._sender.run(flows.info(self._path, bodies.now() + PATIENCE)))

    async def limits(self, timeout: float = PATIENCE) -> Limits:
        """Return the limits for pulls, which the first call reads from the broker and keeps.

        Raise Unreachable if the broker does not answer within `timeout` seconds.
        """
        return await self._sender.run(self._limits(timeout))

    async def settle(self, message: AsyncMessage, settlement: Settlement) -> None:
        """Send the outcome of a message, and repeat it until there is an answer or its lease ends.

        Raise LeaseLost if the lease is lost, Unreachable without an answer or if the row of the job
        stays locked.
        """
        try:
            await self._sender.run(flows.settle(self._path, settlement, _patience(message)))
        except BaseException as error:
            _failed(message, error)
            raise

    async def renew(self, message: AsyncMessage, seconds: float | None) -> float:
        """Renew the lease of a message to `seconds` from now, or its full duration for None.

        Return the seconds left, or raise LeaseLost or Unreachable.
        """
        report = message.report
        try:
            flow = flows.renew(self._path, message.job, report, seconds, _patience(message))
            deadline = await self._sender.run(flow)
        except LeaseLost as error:
            _failed(message, error)
            raise
        message.renewed(deadline, report)
        return message.remaining

    async def done(self) -> None:
        """Do nothing, in place of `settle`, for a message that was settled before."""


def _content(answer: Answer) -> dict[str, Any]:
    return cast("dict[str, Any]", answer.json())


def _patience(message: Message | AsyncMessage) -> float:
    return max(message.deadline, bodies.now() + PATIENCE)


def _failed(message: Message | AsyncMessage, error: BaseException) -> None:
    """Let a message be settled again after a failed request, unless `error` is a LeaseLost."""
    message.revoked = isinstance(error, LeaseLost)
    message.settled = message.revoked
