"""Outbox of one broker: outcomes of messages, sent to the broker in requests of many."""

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from pulljobs.client import bodies, log
from pulljobs.client.bodies import Settlement, Status, now
from pulljobs.client.errors import BadRequest
from pulljobs.client.flows import LOCKED_EVERY, parts
from pulljobs.client.handling import RESULTS
from pulljobs.client.link import Link, Request
from pulljobs.client.messages import Received
from pulljobs.client.room import Room, Share
from pulljobs.engine.circuit import CircuitState

Held = Received[Any, Any]


@dataclass(eq=False, kw_only=True)
class Outbox:
    """Outcomes of messages on their way to a broker, on the event loop.

    Threads that run handlers call only `put`.
    """

    link: Link
    room: Room
    share: Share
    held: set[Held]
    """Messages of the broker whose outcome it has not confirmed."""
    open: set[Held]
    """Held messages without an outcome."""
    flush_interval: float
    counts: Counter[str]
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    locked: list[tuple[Held, Settlement]] = field(default_factory=list)
    """Outcomes that the broker could not write, because the rows were locked."""
    _unread: deque[tuple[Held, Settlement]] = field(default_factory=deque)
    """Outcomes that `put` has left for the event loop."""
    _will_read: bool = False
    """True from the first `put` until the event loop reads: so it is woken once for many."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """Lock of `_unread` and `_will_read`, which handlers' threads and the event loop share."""
    _waiting: deque[tuple[Held, Settlement]] = field(default_factory=deque)
    _filled: asyncio.Event = field(default_factory=asyncio.Event)
    _urgent: asyncio.Event = field(default_factory=asyncio.Event)
    _has_locked: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_flushed(self) -> bool:
        """True if the broker has confirmed all outcomes that were reported so far."""
        return not self.held or self.held == self.open

    def put(self, message: Held, settlement: Settlement) -> None:
        """Queue an outcome, to be sent unless the message is revoked. Any thread may call this."""
        with self._lock:
            self._unread.append((message, settlement))
            is_first, self._will_read = not self._will_read, True
        if is_first:
            with suppress(RuntimeError):  # the event loop has ended
                self.loop.call_soon_threadsafe(self._sort_unread)

    async def flush_forever(self) -> None:
        while True:
            await self._filled.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.flush_interval):
                    await self._urgent.wait()
            await self._flush()

    def flush_now(self) -> None:
        """Have the collected outcomes sent at once, without waiting for `flush_interval`."""
        if self._waiting:
            self._urgent.set()

    async def settle_locked_forever(self) -> None:
        """Send outcomes again, each second, that were not written because a row was locked."""
        while True:
            await self._has_locked.wait()
            await asyncio.sleep(LOCKED_EVERY)
            batch, self.locked = self.locked, []
            self._has_locked.clear()
            for some in parts(batch, self.link.most_outcomes):
                await self._write(some)

    def _sort_unread(self) -> None:
        """Queue outcomes that `put` has left, and count their results in the circuit.

        Messages whose lease is lost are let go instead: nothing is sent for them.
        """
        with self._lock:
            unread, self._unread = self._unread, deque()
            self._will_read = False
        for message, settlement in unread:
            self._count_result(message, message.result or RESULTS[settlement.outcome])
            if message.revoked:
                self._lose([message])
            else:
                self._waiting.append((message, settlement))
        if self._waiting:
            self._filled.set()
        if len(self._waiting) >= self.link.most_outcomes or not self.open:
            self._urgent.set()
        self.room.wake()

    def _count_result(self, message: Held, result: Any) -> None:
        state = self.room.count_result(message.ticket, message.id, result)
        if state is not None:
            circuit = self.room.circuit
            seconds = circuit.blocked_until - now() if state is not CircuitState.CLOSED else 0.0
            log.circuit(state, circuit.level, seconds)

    async def _flush(self) -> None:
        most = self.link.most_outcomes
        batch = [self._waiting.popleft() for _ in range(min(most, len(self._waiting)))]
        self._urgent.clear()
        if not self._waiting:
            self._filled.clear()
        elif len(self._waiting) >= most or not self.open:
            self._urgent.set()
        if batch:
            await self._write(batch)

    async def _write(self, batch: Sequence[tuple[Held, Settlement]]) -> None:
        """Send outcomes in one request. After a BadRequest, send each half of them.

        So an outcome that the broker refuses does not keep the others from being written.
        """
        body = bodies.ack(settlement for _message, settlement in batch)
        request = self.link.make_request("ack", body)
        try:
            answer = await self.link.ask(request)
        except BadRequest as error:
            await self._bisect(batch, error)
        else:
            self._confirm(batch, bodies.statuses(answer, len(batch)), request)

    async def _bisect(self, batch: Sequence[tuple[Held, Settlement]], error: BadRequest) -> None:
        middle = len(batch) // 2
        if middle:
            await self._write(batch[:middle])
            await self._write(batch[middle:])
        else:
            [(message, _settlement)] = batch
            log.refused(message.id, error)
            self._lose([message])

    def _confirm(
        self, batch: Sequence[tuple[Held, Settlement]], statuses: list[Status], request: Request
    ) -> None:
        settled, lost = [], []
        for (message, settlement), status in zip(batch, statuses, strict=True):
            if status is Status.REFUSED:
                log.refused(message.id)
            if status is Status.LOCKED:
                self.locked.append((message, settlement))
            elif status is Status.OK or (request.in_doubt and not settlement.can_be_repeated):
                self.counts[settlement.outcome.lower()] += 1
                settled.append(message)
            else:
                lost.append(message)
        self._let_go(settled)
        if lost:
            self._lose(lost)
        if self.locked:
            self._has_locked.set()

    def lose_all(self) -> None:
        """Let all held messages go, because their outcomes can't be sent any more."""
        if self.held:
            self._lose(list(self.held))

    def _lose(self, messages: list[Held]) -> None:
        self._let_go(messages)
        self.counts["lost"] += len(messages)
        log.leases_lost(len(messages))

    def _let_go(self, messages: list[Held]) -> None:
        self.held.difference_update(messages)
        self.room.settled(self.share, len(messages))
