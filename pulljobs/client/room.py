"""How many messages may be pulled, over all brokers together. For one event loop.

Held are messages that were pulled and whose end the broker has not confirmed; asked are those that
a pull may bring at any moment. Both together never exceed the limit. A broker that is away for so
long that all its leases are over holds nothing any more.

    brokers <= limit   idle brokers keep room for one each, the others share the rest evenly
    brokers > limit    they take turns, one message each; idle ones come less often
    the circuit        no room while it is open; then one message from one broker, the probe
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pulljobs.engine.circuit import Circuit, Result, State

TURN: Final = 1.0
"""Seconds until the next turn of an idle broker; it keeps it as long if all are idle."""
REFILL: Final = 0.5
"""Room is filled when so much of it is free, or nothing waits for a handler any more."""


@dataclass(eq=False)
class Share:
    """What one broker has of the room."""

    live: bool = False
    down_at: float = 0.0
    forfeited: bool = False
    """Away until the leases were over."""
    fresh: bool = True
    """Nothing came from it since it was reached: the first pull asks for 1."""
    idle: bool = False
    """Its last pull brought nothing."""
    held: int = 0
    asked: int = 0
    asked_at: float = 0.0
    ticket: int = 0
    """Of what it was asked for."""
    waits: Callable[[], bool] = bool
    """Whether some of what is held waits for a handler."""

    @property
    def taken(self) -> int:
        return 0 if self.forfeited else self.held + self.asked

    def changed(self, *, is_up: bool) -> None:
        """The broker was reached, or lost."""
        self.live, self.fresh, self.forfeited = is_up, True, False
        self.down_at = time.monotonic()


@dataclass(eq=False)
class Room:
    limit: int
    circuit: Circuit
    shares: list[Share] = field(default_factory=list)
    stopping: bool = False
    _outstanding: set["asyncio.Task[Any]"] = field(default_factory=set)
    _change: asyncio.Event = field(default_factory=asyncio.Event)

    def share(self) -> Share:
        """For one more broker."""
        self.shares.append(Share())
        return self.shares[-1]

    @property
    def held(self) -> int:
        return sum(share.held for share in self.shares)

    def batch(self, share: Share, most: int) -> int:
        """How many this broker may be asked for now."""
        now = time.monotonic()
        allowed = self.circuit.room(now)
        free = self.limit - sum(one.taken for one in self.shares)
        if self.stopping or free <= 0 or allowed == 0:
            return 0
        if allowed is not None:  # The probe.
            return int(self._has_turn(share, now) and not self._is_asking)
        if self.takes_turns:
            return int(self._has_turn(share, now))
        wanted = min(free, self._part(share) - share.taken, most, 1 if share.fresh else most)
        is_worth_it = wanted >= min(self._part(share), most) * REFILL or not share.waits()
        return max(wanted, 0) if is_worth_it or share.fresh else 0

    def lingers(self, share: Share, longest: float) -> float:
        """Seconds for which a pull may wait for messages: others must not lack its room."""
        live = self._live
        if len(live) == 1:
            return longest
        if not share.idle:
            return 0.0
        if not self.takes_turns:
            return longest
        return min(TURN, longest) if all(one.idle for one in live) else 0.0

    @contextmanager
    def asking(self, share: Share, batch: int) -> Iterator[None]:
        """While the pull is on its way, its batch is taken; begin it at once."""
        share.asked, share.asked_at = batch, time.monotonic()
        share.ticket = self.circuit.ticket
        try:
            yield
        finally:
            share.asked = 0
            self.changed()

    def received(self, share: Share, count: int) -> int:
        """The ticket of what a pull brought."""
        share.idle, share.fresh = not count, False
        share.held += count
        if count:
            self.circuit.claimed(share.ticket)
        return share.ticket

    def settled(self, share: Share, count: int) -> None:
        share.held -= count
        self.changed()

    def tell(self, ticket: int, result: Result) -> State | None:
        """The new state of the circuit, if that changed it."""
        now = time.monotonic()
        changed = self.circuit.tell(ticket, result, now)
        if changed:
            self.interrupt()
        if self.circuit.level or changed:
            self.changed()
        return self.circuit.state(now) if changed else None

    def resize(self, limit: int) -> None:
        if limit < self.limit:
            self.interrupt()
        self.limit = limit
        self.changed()

    def stop(self) -> None:
        self.stopping = True
        self.interrupt()
        self.changed()

    def interrupt(self) -> None:
        """End pulls that are on their way: what they were to bring is not wanted any more."""
        for request in self._outstanding:
            request.cancel()

    async def unless_interrupted(self, request: "asyncio.Task[Any]") -> bool:
        """Wait for it; whether it came to an end of its own."""
        self._outstanding.add(request)
        try:
            await asyncio.wait({request})
        finally:
            self._outstanding.discard(request)
            request.cancel()
        return not request.cancelled()

    def changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def change(self) -> None:
        """Until there may be room that was not there."""
        try:
            async with asyncio.timeout(self._seconds_to_wait()):
                await self._change.wait()
        except TimeoutError:
            return

    @property
    def takes_turns(self) -> bool:
        return self.limit < len(self._live) or self.circuit.level > 0

    def _seconds_to_wait(self) -> float | None:
        blocked = self.circuit.blocked_until - time.monotonic()
        if self.circuit.level and blocked > 0:
            return blocked
        return TURN if len(self._live) > 1 else None

    @property
    def _live(self) -> list[Share]:
        return [share for share in self.shares if share.live]

    @property
    def _is_asking(self) -> bool:
        return any(share.asked for share in self._live)

    def _part(self, share: Share) -> int:
        live = self._live
        if len(live) == 1:
            return self.limit
        busy = [one for one in live if not one.idle]
        if share not in busy:
            return 1
        each, over = divmod(self.limit - (len(live) - len(busy)), len(busy))
        return each + (busy.index(share) < over)

    def _has_turn(self, share: Share, now: float) -> bool:
        """Who was asked the longest ago; those first that are not idle, or have waited a while."""
        waiting = [one for one in self._live if not one.asked]
        return share is min(
            waiting,
            key=lambda one: (one.idle and now - one.asked_at < TURN, one.asked_at),
            default=None,
        )
