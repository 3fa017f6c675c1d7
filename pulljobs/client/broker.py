"""Broker of a `Consumer`: pulls, held messages, and outcomes for it."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from pulljobs.client import bodies, log
from pulljobs.client.bodies import Job, Outcome, Pulled, Settlement, Status, now
from pulljobs.client.calls import Answer, Call
from pulljobs.client.errors import BadRequest, LeaseLost, Unreachable
from pulljobs.client.flows import GRACE, MOST_OUTCOMES, SHUTS_DOWN, parts
from pulljobs.client.handling import RESULTS, Ending
from pulljobs.client.link import Link, Request
from pulljobs.client.messages import Received
from pulljobs.client.room import Room, Share
from pulljobs.client.strategies import Delay
from pulljobs.engine.circuit import CircuitState

Held = Received[Any, Any]

LONGEST_LINGER: Final = 30.0
SHUTDOWN_PAUSE: Final = 1.0
STARVED: Final = 0.85


@dataclass(eq=False)
class Broker:
    """Broker on the event loop; threads of handlers call only `begin`, `end` and `settle`."""

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
    """Messages that were pulled and whose outcome is not confirmed."""
    open: set[Held] = field(default_factory=set)
    """Held messages without an outcome."""
    handed: set[Held] = field(default_factory=set)
    """Open messages that a handler has, or had and detached."""
    recipient: Any = None
    """Recipient of the outcomes of its messages."""
    _unread: "deque[tuple[Held, Settlement]]" = field(default_factory=deque)
    _outbox: "deque[tuple[Held, Settlement]]" = field(default_factory=deque)
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
        """Limit of outcomes or renewals in a request."""
        return min(MOST_OUTCOMES, self.link.limits.max_batch)

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
        """Flush waiting outcomes without waiting for more."""
        if self._outbox:
            self._urgent.set()

    async def renew(self, message: Held, seconds: float | None) -> float:
        """Renew one lease; return the seconds left.

        Raise LeaseLost, or Unreachable if the lease ends before there is an answer.
        """
        try:
            async with asyncio.timeout(max(message.remaining, GRACE)):
                [left] = await self._renew([message], seconds)
        except TimeoutError as error:
            raise Unreachable(f"{self.link.base_url} is away: nothing was renewed.") from error
        if left is None:
            raise LeaseLost(message.id)
        return left

    async def keep(self, within: float) -> None:
        """Renew open messages whose lease ends within `within` seconds."""
        due = [
            message
            for message in list(self.open)
            if not message.lost and message.deadline - now() < within
        ]
        try:
            for some in parts(due, self._most):
                await self._renew(some, None)
        except BadRequest:
            if not await self.link.has_new_limits():
                raise

    def forget_expired(self, running: set[Held]) -> None:
        """Release detached messages whose lease ended without an outcome."""
        for message in list(self.handed - running):
            if message.deadline + GRACE < now():
                message.lost = True
                message.settle(Outcome.RELEASE)

    def forfeit_if_lost(self) -> None:
        """Give the share of a lost broker to others once all of its leases have ended."""
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
        """Return True if a handler may begin: not after the end of the lease or during a stop."""
        if message.settled:
            return False
        message.lost = message.lost or message.deadline <= now()
        if message.lost or self.room.stopping:
            message.settle(Outcome.RELEASE)
            return False
        self.handed.add(message)
        return True

    def end(self, message: Held, ending: Ending | None) -> None:
        """Settle the message after its handler, unless it is settled already."""
        if ending is not None and not message.settled:
            message.result = ending.result
            message.settle(ending.outcome, ending.delay, ending.reason)

    def settle(self, message: Held, settlement: Settlement) -> None:
        self.open.discard(message)
        self.handed.discard(message)
        with self._lock:
            self._unread.append((message, settlement))
            first, self._noticed = not self._noticed, True
        if first:
            with suppress(RuntimeError):  # the event loop has ended
                self.loop.call_soon_threadsafe(self._notice)

    def _notice(self) -> None:
        with self._lock:
            unread, self._unread = self._unread, deque()
            self._noticed = False
        for message, settlement in unread:
            result = message.result or RESULTS[settlement.outcome]
            self._count_result(message, result)
            if message.lost:
                self._lose([message])
            else:
                self._outbox.append((message, settlement))
        if self._outbox:
            self._filled.set()
        if len(self._outbox) >= self._most or not self.open:
            self._urgent.set()
        self.room.changed()

    def _count_result(self, message: Held, result: Any) -> None:
        state = self.room.count_result(message.ticket, message.id, result)
        if state is not None:
            circuit = self.room.circuit
            seconds = circuit.blocked_until - now() if state is not CircuitState.CLOSED else 0.0
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
        messages = [self.message_of(job, self.recipient) for job in pulled.jobs]
        for message in messages:
            message.ticket = ticket
        self.held.update(messages)
        self.open.update(messages)
        self.counts["received"] += len(messages)
        for message in messages:
            if seconds := self.room.admit(ticket, message.id):
                message.settle(Outcome.RELEASE, bodies.delay(seconds))
        # The next pull is sent before handlers begin, which may take long.
        self.loop.call_soon(self.hand_out, [each for each in messages if not each.settled])

    async def _recall(self, request_id: str) -> None:
        """Release the jobs of an interrupted pull, as if never pulled.

        A repeat of the pull returns those jobs. Its limit of one byte keeps other jobs out.
        """
        body = bodies.pull(1, request_id, max_bytes=1)
        answer = await self.link.ask(self._request("pull", body))
        jobs = bodies.pulled(answer, self.link.limits, now()).jobs
        if jobs:
            settlements = [Settlement(job, Outcome.RELEASE) for job in jobs]
            await self.link.ask(self._request("ack", bodies.ack(settlements)))

    async def _flush(self) -> None:
        batch = [self._outbox.popleft() for _ in range(min(self._most, len(self._outbox)))]
        self._urgent.clear()
        if not self._outbox:
            self._filled.clear()
        elif len(self._outbox) >= self._most or not self.open:
            self._urgent.set()
        if batch:
            await self._write(batch)

    async def _write(self, batch: list[tuple[Held, Settlement]]) -> None:
        """Send outcomes; one that the broker refuses does not hold up the others."""
        request = self._request("ack", bodies.ack(settlement for _message, settlement in batch))
        try:
            answer = await self.link.ask(request)
        except BadRequest as error:
            await self._bisect(batch, error)
        else:
            self._confirm(batch, bodies.statuses(answer), request)

    async def _bisect(self, batch: list[tuple[Held, Settlement]], error: BadRequest) -> None:
        middle = len(batch) // 2
        if middle:
            await self._write(batch[:middle])
            await self._write(batch[middle:])
        else:
            [(message, _settlement)] = batch
            log.refused(message.id, error)
            self._lose([message])

    def _confirm(
        self, batch: list[tuple[Held, Settlement]], statuses: list[Status], request: Request
    ) -> None:
        lost = []
        for (message, settlement), status in zip(batch, statuses, strict=True):
            if status is Status.REFUSED:
                log.refused(message.id)
            if status is Status.OK or (request.in_doubt and not settlement.can_be_repeated):
                self.counts[settlement.outcome.lower()] += 1
            else:
                lost.append(message)
        self._let_go([message for message, _settlement in batch])
        if lost:
            self.counts["lost"] += len(lost)
            log.leases_lost(len(lost))

    async def _renew(self, messages: Sequence[Held], seconds: float | None) -> list[float | None]:
        body = bodies.renew([message.job for message in messages], seconds)
        remaining = bodies.remaining(await self.link.ask(self._request("renew", body)))
        for message, left in zip(messages, remaining, strict=True):
            if left is None:
                message.lost = True
            else:
                message.deadline = now() + left
        return remaining

    def _request(self, verb: str, body: bytes, seconds: float = 2 * GRACE) -> Request:
        return Request(Call("POST", f"{self.path}/{verb}", body, seconds))

    def _lose(self, messages: list[Held]) -> None:
        self._let_go(messages)
        self.counts["lost"] += len(messages)
        log.leases_lost(len(messages))

    def _let_go(self, messages: list[Held]) -> None:
        self.held.difference_update(messages)
        self.room.settled(self.share, len(messages))
