"""One broker of a `Consumer`: what is pulled from it, held, and said to it."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from pulljobs.client import bodies, log
from pulljobs.client.bodies import Job, Outcome, Pulled, Status, Word, now
from pulljobs.client.calls import Answer, Call
from pulljobs.client.errors import BadRequest, LeaseLost, Unreachable
from pulljobs.client.flows import GRACE, MOST_WORDS, SHUTS_DOWN, parts
from pulljobs.client.handling import RESULTS, Verdict
from pulljobs.client.link import Link, Request
from pulljobs.client.messages import Received
from pulljobs.client.room import Room, Share
from pulljobs.client.strategies import Delay
from pulljobs.engine.circuit import State

Held = Received[Any, Any]

LONGEST_LINGER: Final = 30.0
SHUTDOWN_PAUSE: Final = 1.0
STARVED: Final = 0.85


@dataclass(eq=False)
class Broker:
    """Used on the event loop; handlers' threads call `begin`, `end` and `settle` alone."""

    link: Link
    path: str
    room: Room
    share: Share
    hand_out: Callable[[list[Any]], None]
    message_of: Callable[[Job, Any], Held]
    requeue: Delay | None
    flush_seconds: float
    counts: Counter[str]
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    held: set[Held] = field(default_factory=set)
    """Pulled, and their end not confirmed."""
    open: set[Held] = field(default_factory=set)
    """Those of them of which nothing was said yet."""
    handed: set[Held] = field(default_factory=set)
    """Those of the open that a handler has, or had and detached."""
    desk: Any = None
    """Where its messages say how they end."""
    _said: "deque[tuple[Held, Word]]" = field(default_factory=deque)
    _outbox: "deque[tuple[Held, Word]]" = field(default_factory=deque)
    _noticed: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _filled: asyncio.Event = field(default_factory=asyncio.Event)
    _urgent: asyncio.Event = field(default_factory=asyncio.Event)
    _asking: "asyncio.Task[Answer] | None" = None

    def __post_init__(self) -> None:
        self.share.waits = lambda: len(self.open) > len(self.handed)

    @property
    def is_starved(self) -> bool:
        handed = len(self.handed)
        return handed > 0 and handed >= STARVED * len(self.open)

    @property
    def _most(self) -> int:
        """Outcomes and renewals of one request."""
        return min(MOST_WORDS, self.link.limits.max_batch)

    @property
    def is_flushed(self) -> bool:
        return not self.held or self.held == self.open

    async def pull_forever(self) -> None:
        while True:
            limits = self.link.limits
            most = min(limits.max_batch, limits.max_in_flight or limits.max_batch)
            batch = self.room.batch(self.share, most) if self.link.is_up else 0
            if batch:
                await self._pull(batch)
            elif self.room.stopping:
                return
            else:
                await self.room.change()

    async def flush_forever(self) -> None:
        while True:
            await self._filled.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.flush_seconds):
                    await self._urgent.wait()
            await self._flush()

    def hurry(self) -> None:
        """Flush what there is, without waiting for more."""
        if self._outbox:
            self._urgent.set()

    async def renew(self, message: Held, seconds: float | None) -> float:
        """For the message's own `in_progress`; Unreachable if the lease ends over it."""
        try:
            async with asyncio.timeout(max(message.remaining, GRACE)):
                [left] = await self._renew([message], seconds)
        except TimeoutError as error:
            raise Unreachable(f"{self.link.base_url} is away: nothing was renewed.") from error
        if left is None:
            raise LeaseLost(message.id)
        return left

    async def keep(self, within: float) -> None:
        """Renew what is open and whose lease ends within so many seconds."""
        due = [one for one in list(self.open) if not one.lost and one.deadline - now() < within]
        try:
            for some in parts(due, self._most):
                await self._renew(some, None)
        except BadRequest:
            if not await self.link.has_new_limits():
                raise

    def forget_expired(self, running: set[Held]) -> None:
        """What was detached and never ended is not ours any more."""
        for message in list(self.handed - running):
            if message.deadline + GRACE < now():
                message.lost = True
                message.say(Outcome.RELEASE)

    def forfeit_if_lost(self) -> None:
        """Where no lease can last any more others may have the room, though much is unsaid."""
        share = self.share
        if share.live or share.forfeited or not share.taken:
            return
        last = max((message.deadline for message in self.held), default=0.0)
        if now() > max(last, share.down_at + self.link.limits.lease_seconds):
            share.forfeited = True
            if self._asking is not None:
                self._asking.cancel()
            self.room.changed()

    def begin(self, message: Held) -> bool:
        """Whether a handler may have it: not when its lease is over, or all ends."""
        if message.settled:
            return False
        message.lost = message.lost or message.deadline <= now()
        if message.lost or self.room.stopping:
            message.say(Outcome.RELEASE)
            return False
        self.handed.add(message)
        return True

    def end(self, message: Held, verdict: Verdict | None) -> None:
        """The handler returned; nothing of it counts if the message was ended before."""
        if verdict is not None and not message.settled:
            message.result = verdict.result
            message.say(verdict.outcome, verdict.delay, verdict.reason)

    def settle(self, message: Held, word: Word) -> None:
        self.open.discard(message)
        self.handed.discard(message)
        with self._lock:
            self._said.append((message, word))
            first, self._noticed = not self._noticed, True
        if first:
            with suppress(RuntimeError):  # The loop is over: nobody can be told any more.
                self.loop.call_soon_threadsafe(self._notice)

    def _notice(self) -> None:
        with self._lock:
            said, self._said = self._said, deque()
            self._noticed = False
        for message, word in said:
            result = message.result or RESULTS[word.outcome]
            self._tell(message, result)
            if message.lost:
                self._lose([message])
            else:
                self._outbox.append((message, word))
        if self._outbox:
            self._filled.set()
        if len(self._outbox) >= self._most or not self.open:
            self._urgent.set()
        self.room.changed()

    def _tell(self, message: Held, result: Any) -> None:
        state = self.room.tell(message.ticket, result)
        if state is not None:
            circuit = self.room.circuit
            seconds = circuit.blocked_until - now() if state is not State.CLOSED else 0.0
            log.circuit(state, circuit.level, seconds)

    async def _pull(self, batch: int) -> None:
        request_id, asked_at = uuid4().hex, now()
        expires = self.room.lingers(self.share, min(LONGEST_LINGER, self.link.limits.max_expires))
        body = bodies.pull(batch, request_id, expires=expires)
        request = self._request("pull", body, expires + GRACE)
        with self.room.asking(self.share, batch):
            asking = self._asking = asyncio.create_task(self.link.ask(request))
            if not await self.room.unless_interrupted(asking):
                if request.in_doubt and not self.share.forfeited:
                    await self._recall(request_id)
                return
            try:
                pulled = bodies.pulled(asking.result(), self.link.limits, asked_at)
            except BadRequest:
                if await self.link.has_new_limits():
                    return
                raise
            self._receive(pulled)
        if pulled.reason == SHUTS_DOWN and not pulled.jobs:
            await asyncio.sleep(SHUTDOWN_PAUSE)

    def _receive(self, pulled: Pulled) -> None:
        ticket = self.room.received(self.share, len(pulled.jobs))
        messages = [self.message_of(job, self.desk) for job in pulled.jobs]
        for message in messages:
            message.ticket = ticket
        self.held.update(messages)
        self.open.update(messages)
        self.counts["received"] += len(messages)
        # Not at once: the next pull is on its way before handlers take their time.
        self.loop.call_soon(self.hand_out, messages)

    async def _recall(self, request_id: str) -> None:
        """What an interrupted pull was given goes back as if never taken.

        Its repeat brings that, and hardly anything else, for nothing is as small as this allows.
        """
        body = bodies.pull(1, request_id, max_bytes=1)
        answer = await self.link.ask(self._request("pull", body))
        jobs = bodies.pulled(answer, self.link.limits, now()).jobs
        if jobs:
            words = [Word(job, Outcome.RELEASE) for job in jobs]
            await self.link.ask(self._request("ack", bodies.ack(words)))

    async def _flush(self) -> None:
        batch = [self._outbox.popleft() for _ in range(min(self._most, len(self._outbox)))]
        self._urgent.clear()
        if not self._outbox:
            self._filled.clear()
        elif len(self._outbox) >= self._most or not self.open:
            self._urgent.set()
        if batch:
            await self._write(batch)

    async def _write(self, batch: list[tuple[Held, Word]]) -> None:
        """One that the broker refuses never holds up the others."""
        request = self._request("ack", bodies.ack(word for _message, word in batch))
        try:
            answer = await self.link.ask(request)
        except BadRequest as error:
            await self._bisect(batch, error)
        else:
            self._confirm(batch, bodies.statuses(answer), request)

    async def _bisect(self, batch: list[tuple[Held, Word]], error: BadRequest) -> None:
        middle = len(batch) // 2
        if middle:
            await self._write(batch[:middle])
            await self._write(batch[middle:])
        else:
            [(message, _word)] = batch
            log.refused(message.id, error)
            self._lose([message])

    def _confirm(
        self, batch: list[tuple[Held, Word]], statuses: list[Status], request: Request
    ) -> None:
        lost = []
        for (message, word), status in zip(batch, statuses, strict=True):
            if status is Status.REFUSED:
                log.refused(message.id)
            if status is Status.OK or (request.in_doubt and not word.can_be_repeated):
                self.counts[word.outcome.lower()] += 1
            else:
                lost.append(message)
        self._let_go([message for message, _word in batch])
        if lost:
            self.counts["lost"] += len(lost)
            log.leases_lost(len(lost))

    async def _renew(self, messages: Sequence[Held], seconds: float | None) -> list[float | None]:
        body = bodies.renew([message.job for message in messages], seconds)
        told = bodies.remaining(await self.link.ask(self._request("renew", body)))
        for message, left in zip(messages, told, strict=True):
            if left is None:
                message.lost = True
            else:
                message.deadline = now() + left
        return told

    def _request(self, verb: str, body: bytes, seconds: float = 2 * GRACE) -> Request:
        return Request(Call("POST", f"{self.path}/{verb}", body, seconds))

    def _lose(self, messages: list[Held]) -> None:
        self._let_go(messages)
        self.counts["lost"] += len(messages)
        log.leases_lost(len(messages))

    def _let_go(self, messages: list[Held]) -> None:
        self.held.difference_update(messages)
        self.room.settled(self.share, len(messages))
