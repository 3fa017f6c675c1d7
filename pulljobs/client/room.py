"""Limit of the messages that a consumer holds from all its brokers together.

Held messages were pulled, and the broker has not confirmed their outcome. Asked messages may come
with the answer to a pull at any moment. No pull makes both together exceed the limit. A broker that
is away until all its leases have ended counts as holding none.

    brokers <= limit   idle brokers keep room for one message each, the others share the rest evenly
    brokers > limit    they take turns with one message each, and idle brokers have fewer turns
    circuit            no room while it is open, then one message from one broker as the probe
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from pulljobs.engine.circuit import Circuit, CircuitState, Result

TURN: Final = 1.0
"""Seconds until the next turn of an idle broker, and length of its turn if all are idle."""
REFILL: Final = 0.5
"""Fraction of a broker's share that is free before a pull, unless no message waits to run."""


@dataclass(eq=False)
class Share:
    """Messages that one broker may take of the limit, and those that it has taken."""

    live: bool = False
    down_at: float = field(default_factory=time.monotonic)
    forfeited: bool = False
    """True if the broker was away until its leases had ended."""
    fresh: bool = True
    """True until the first pull since the broker was reached has ended: it asks for one message."""
    idle: bool = False
    """True if its last pull brought nothing."""
    held: int = 0
    asked: int = 0
    asked_at: float = 0.0
    ticket: int = 0
    """Number of the circuit's last change before the pull. It ignores results of older pulls."""
    waits: Callable[[], bool] = bool
    """Function that returns True if a held message waits for a handler."""

    @property
    def taken(self) -> int:
        """Number of messages that count towards the limit: held or asked for, 0 if `forfeited`."""
        return 0 if self.forfeited else self.held + self.asked

    def changed(self, *, is_up: bool) -> None:
        """Note whether the link to the broker is up. Its next pull asks for one message only."""
        self.live, self.fresh, self.forfeited = is_up, True, False
        self.down_at = time.monotonic()


@dataclass(eq=False)
class Room:
    """Limit of held messages, divided into a `Share` of each broker, and the consumer's circuit."""

    limit: int
    circuit: Circuit
    shares: list[Share] = field(default_factory=list)
    stopping: bool = False
    _outstanding: set["asyncio.Task[Any]"] = field(default_factory=set)
    _change: asyncio.Event = field(default_factory=asyncio.Event)

    def share(self) -> Share:
        """Add a broker of the consumer and return its share, which has no messages yet."""
        self.shares.append(Share())
        return self.shares[-1]

    @property
    def held(self) -> int:
        return sum(share.held for share in self.shares)

    def batch(self, share: Share, most: int) -> int:
        """Return how many messages this broker may be asked for now, at most `most`, or 0."""
        now = time.monotonic()
        allowed = self.circuit.room(now)
        free = self.limit - sum(other.taken for other in self.shares)
        if self.stopping or free <= 0 or allowed == 0:
            return 0
        if allowed is not None:  # the probe
            return int(self._has_turn(share, now) and not self._is_asking)
        if self.takes_turns:
            return int(self._has_turn(share, now))
        wanted = min(free, self._part(share) - share.taken, most, 1 if share.fresh else most)
        is_worth_it = wanted >= min(self._part(share), most) * REFILL or not share.waits()
        return max(wanted, 0) if is_worth_it or share.fresh else 0

    def long_poll_seconds(self, share: Share, longest: float) -> float:
        """Return for how many seconds a pull from this broker may wait for messages."""
        live = self._live
        if len(live) == 1:
            return longest
        if not share.idle:
            return 0.0
        if not self.takes_turns:
            return longest
        return min(TURN, longest) if all(other.idle for other in live) else 0.0

    @contextmanager
    def asking(self, share: Share, batch: int) -> Iterator[None]:
        """Count `batch` messages towards the limit, while the block pulls them from a broker."""
        share.asked, share.asked_at = batch, time.monotonic()
        share.ticket = self.circuit.ticket
        try:
            yield
        finally:
            share.asked = 0
            self.wake()

    def received(self, share: Share, count: int) -> int:
        """Count pulled messages as held. Return the ticket that the circuit had before the pull."""
        share.idle, share.fresh = not count, False
        share.held += count
        return share.ticket

    def admit(self, ticket: int, message_id: str) -> float:
        """Return 0 if the message of a pull may run, else the seconds for which to release it."""
        return self.circuit.admit(ticket, message_id, time.monotonic())

    def settled(self, share: Share, count: int) -> None:
        share.held -= count
        self.wake()

    def count_result(self, ticket: int, message_id: str, result: Result) -> CircuitState | None:
        """Count a handler's result. Return the circuit's state if it changes, or its pause does."""
        now = time.monotonic()
        changed = self.circuit.count_result(ticket, message_id, result, now)
        if changed:
            self.interrupt()
        if self.circuit.level or changed:
            self.wake()
        return self.circuit.state(now) if changed else None

    def resize(self, limit: int) -> None:
        if limit < self.limit:
            self.interrupt()
        self.limit = limit
        self.wake()

    def stop(self) -> None:
        self.stopping = True
        self.interrupt()
        self.wake()

    def interrupt(self) -> None:
        """Cancel the pulls that wait for messages: the consumer may now hold fewer, or none."""
        for request in self._outstanding:
            request.cancel()

    async def unless_interrupted(self, request: "asyncio.Task[Any]") -> bool:
        """Wait for a request. Return False if it was cancelled, for example by `interrupt`."""
        self._outstanding.add(request)
        try:
            await asyncio.wait({request})
        finally:
            self._outstanding.discard(request)
            request.cancel()
        return not request.cancelled()

    def wake(self) -> None:
        self._change.set()
        self._change = asyncio.Event()

    async def wait_for_change(self) -> None:
        """Wait until a broker may be asked: after a change, a turn, or the circuit's pause."""
        try:
            async with asyncio.timeout(self._seconds_to_wait()):
                await self._change.wait()
        except TimeoutError:
            return

    @property
    def takes_turns(self) -> bool:
        """True if brokers are asked for one message each in turn, not all of them at once."""
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
        busy = [other for other in live if not other.idle]
        if share not in busy:
            return 1
        each, over = divmod(self.limit - (len(live) - len(busy)), len(busy))
        return each + (busy.index(share) < over)

    def _has_turn(self, share: Share, now: float) -> bool:
        """Return True if this broker is the next to be asked: the one asked longest ago.

        A broker whose last pull brought nothing comes after all others for a second.
        """
        waiting = [other for other in self._live if not other.asked]
        return share is min(
            waiting,
            key=lambda other: (other.idle and now - other.asked_at < TURN, other.asked_at),
            default=None,
        )
