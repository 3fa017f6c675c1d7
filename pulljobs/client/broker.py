"""One broker of a `Consumer`: the pulls from it, the held messages, and their leases."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import uuid4

from pulljobs.client import bodies
from pulljobs.client.bodies import WAITING_SHARE, Job, Outcome, Pulled, Settlement, Status, now
from pulljobs.client.calls import Answer
from pulljobs.client.errors import BadRequest, ClientError, LeaseLost, Refused, Unreachable
from pulljobs.client.flows import GRACE, LOCKED, ended_early, parts
from pulljobs.client.handling import Ending
from pulljobs.client.link import Link
from pulljobs.client.outbox import Held, Outbox
from pulljobs.client.room import Room, Share
from pulljobs.client.strategies import Delay

LONGEST_POLL: Final = 30.0
"""Longest time in seconds for which a pull waits at the broker for jobs."""
LOOK_SECONDS: Final = 0.5
"""Longest time in seconds between two passes over the leases."""
LOOKS_PER_LEASE: Final = 10
LEAST_PATIENCE: Final = 1.0
"""Least time limit in seconds of the request of a renewal, however soon the lease ends."""
ENDING_SHARE: Final = 0.2
"""Share of a lease that is left when a message that still waits is released."""
LATE_SHARE: Final = 0.5
"""Share of a lease by which its end may be noticed late without blaming this process."""
EARLY_PAUSE: Final = 1.0
STARVED: Final = 0.85
FORGOTTEN_AFTER: Final = 600.0
"""Seconds after which a lost broker is forgotten that no lookup has brought back."""


@dataclass(eq=False, kw_only=True)
class Broker:
    """Pulls and leases of a running consumer at one broker, on the event loop, and its outbox.

    Threads that run handlers call only `begin`, `end`, `settle` and `patience`.
    """

    link: Link
    room: Room
    share: Share
    hand_out: Callable[[list[Any]], None]
    message_of: Callable[[Job, Any], Held]
    requeue_delay: Delay | None
    flush_interval: float
    counts: Counter[str]
    auto_renew: bool
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.get_running_loop)
    held: set[Held] = field(default_factory=set)
    """Pulled messages whose outcome the broker has not confirmed."""
    open: set[Held] = field(default_factory=set)
    """Held messages without an outcome."""
    handed: set[Held] = field(default_factory=set)
    """Open messages that a handler has, or had and detached."""
    recipient: Any = None
    """Recipient of the outcomes of its messages, by which handlers reach this object."""
    outbox: Outbox = field(init=False)
    """Outcomes that are not sent yet, or that have to be sent again."""
    _renewing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _asking: "asyncio.Task[Answer] | None" = None

    def __post_init__(self) -> None:
        self.outbox = Outbox(
            link=self.link,
            room=self.room,
            share=self.share,
            held=self.held,
            open=self.open,
            flush_interval=self.flush_interval,
            counts=self.counts,
        )
        self.share.waits = lambda: len(self.open) > len(self.handed)

    @property
    def is_starved(self) -> bool:
        """True if handlers have nearly all unsettled messages of this broker, so that few wait."""
        handed = len(self.handed)
        return handed > 0 and handed >= STARVED * len(self.open)

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
                await self.room.wait_for_change()

    @property
    def look_seconds(self) -> float:
        """Seconds between two passes over the leases of held messages."""
        held = (message.job.lease_seconds for message in list(self.open))
        shortest = min(held, default=self.link.limits.lease_seconds)
        return min(LOOK_SECONDS, shortest / LOOKS_PER_LEASE)

    async def renew(self, message: Held, seconds: float | None) -> float:
        """Renew the lease of a message to `seconds` from now, or its full duration for None.

        Return the seconds left. Raise LeaseLost or Refused, or Unreachable if there is no answer in
        the seconds of `patience`, or if another transaction has the row of the lease locked.
        """
        try:
            async with asyncio.timeout(self.patience(message)):
                await self._renew([message], seconds)
        except TimeoutError as error:
            raise Unreachable(f"{self.link.shown_url} is away: nothing was renewed.") from error
        if message.revoked:
            raise LeaseLost(message.id)
        if message.is_unanswered:
            raise Unreachable(LOCKED)
        return float(message.remaining)

    def patience(self, message: Held) -> float:
        """Return how many seconds a handler waits at most for the answer to a renewal."""
        return float(max(message.remaining, GRACE))

    async def keep(self) -> None:
        """Renew leases that are half over: of messages that wait to run, or all if `auto_renew`.

        It also renews leases of messages whose outcome could not be written because the job's row
        was locked. Async handlers of messages whose lease is lost are cancelled.
        """
        due = [
            message
            for message in list(self.open)
            if message.is_due and not message.lost and (self.auto_renew or not message.begun)
        ]
        due += [message for message, _settlement in self.outbox.locked if message.is_due]
        try:
            for some in parts(due, self.link.most_outcomes):
                await self._renew(some, None)
        except BadRequest:
            if not await self.link.has_new_limits():
                raise
        for message in due:
            if message.revoked:
                message.on_cut_off()

    async def renew_before_start(self, message: Held) -> None:
        """Renew the lease of a message before its handler begins, and those of others that wait.

        So a handler begins with nearly a full lease, however long its message has waited. If the
        broker does not answer in time, the handler begins with what is left of the lease.
        """
        with suppress(TimeoutError, ClientError):
            async with asyncio.timeout(min(message.remaining, GRACE)), self._renewing:
                if message.has_waited and not message.settled and self.link.is_up:
                    waiting = self.open - self.handed - {message}
                    others = [other for other in waiting if other.has_waited and not other.lost]
                    await self._renew([message, *others][: self.link.most_outcomes], None)

    def release_ending(self) -> None:
        """Release messages that still wait for a handler and whose lease ends soon."""
        for message in list(self.open):
            if message.remaining < message.job.lease_seconds * ENDING_SHARE:
                message.give_back()

    def note_ends(self) -> None:
        """Record the cause, an outage or not, for running handlers whose lease has ended."""
        for message in list(self.open):
            if message.begun and message.lost:
                self._is_outage(message)

    def _is_outage(self, message: Held) -> bool:
        """Return True if a lease ended because the broker did not answer renewals.

        If the end is noticed late, the result is False: this process was held up, maybe by a
        handler, and sent its renewals late.
        """
        if message.ended_by_outage is None:
            has_no_answer = message.is_unanswered or (self.auto_renew and not self.link.is_up)
            is_late = now() > message.deadline + message.job.lease_seconds * LATE_SHARE
            message.ended_by_outage = has_no_answer and not is_late
        return message.ended_by_outage

    def forget_expired(self, running: set[Held]) -> None:
        """Stop holding detached messages whose lease ended GRACE seconds ago.

        Nothing is sent for them: the broker expires their jobs. `running` are messages whose
        handlers still run, which are kept.
        """
        for message in list(self.handed - running):
            if message.deadline + GRACE < now():
                message.revoked = True
                message.settle(Outcome.RELEASE)

    def forfeit_if_lost(self) -> None:
        """Let other brokers use this broker's share of the limit after an outage ended its leases.

        The limit is that of the messages which the consumer holds from all brokers.
        """
        share = self.share
        if share.live or share.forfeited or not share.taken:
            return
        last = max((message.deadline for message in self.held), default=0.0)
        if now() > max(last, share.down_at + self.link.limits.lease_seconds):
            share.forfeited = True
            if self._asking is not None:
                self._asking.cancel()
            self.room.wake()

    @property
    def is_forgotten(self) -> bool:
        """True if the broker was lost so long ago that its address is probably gone for good.

        Only a lookup can bring it back, as a new broker. All its leases have ended.
        """
        share = self.share
        is_lost = self.link.is_discovered and not share.live and not share.taken
        return is_lost and now() - share.down_at > FORGOTTEN_AFTER

    def begin(self, message: Held) -> bool:
        """Note that a handler begins, and return True, or False if it must not begin.

        It must not if the message is settled, nor after the end of the lease or during a stop, when
        the message is released.
        """
        if message.lost or self.room.stopping:
            message.give_back()
        if not message.begin():
            return False
        self.handed.add(message)
        return True

    def end(self, message: Held, ending: Ending | None) -> None:
        """Settle a message with its handler's outcome, unless it is settled or `ending` is None.

        A release after the end of the lease is sent only if the broker was out of reach. Otherwise
        nothing is written and the lease expires, which charges the job.
        """
        if ending is not None and not message.settled:
            if ending.outcome is Outcome.RELEASE and message.lost and not self._is_outage(message):
                message.revoked = True
            message.result = ending.result
            message.settle(ending.outcome, ending.delay, ending.reason, ending.throttle)

    def settle(self, message: Held, settlement: Settlement) -> None:
        """Queue an outcome, to be sent unless the message is revoked. Any thread may call this."""
        self.open.discard(message)
        self.handed.discard(message)
        self.outbox.put(message, settlement)

    async def _pull(self, batch: int) -> None:
        request_id, asked_at = uuid4().hex, now()
        longest = min(LONGEST_POLL, self.link.limits.max_expires)
        expires = self.room.long_poll_seconds(self.share, longest)
        body = bodies.pull(batch, request_id, expires=expires)
        request = self.link.make_request("pull", body, expires + GRACE)
        with self.room.asking(self.share, batch):
            asking = self._asking = asyncio.create_task(self.link.ask(request, may_give_up=True))
            if not await self.room.unless_interrupted(asking):
                if request.in_doubt and not self.share.forfeited:
                    await self._recall(request_id)
                return
            try:
                pulled = bodies.pulled(asking.result(), self.link.limits, asked_at)
            except Unreachable:  # The room is for other brokers.
                return
            except BadRequest:
                if await self.link.has_new_limits():
                    return
                raise
            self._receive(pulled)
        if ended_early(pulled, asked_at, expires):
            await asyncio.sleep(EARLY_PAUSE)

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
        """Release the jobs that the broker may have claimed for an interrupted pull.

        To learn their ids, the pull is sent again with its request id. If there was no claim, a
        limit of one byte keeps this pull from claiming jobs.
        """
        body = bodies.pull(1, request_id, max_bytes=1)
        answer = await self.link.ask(self.link.make_request("pull", body))
        jobs = bodies.pulled(answer, self.link.limits, now()).jobs
        if jobs:
            settlements = [Settlement(job, Outcome.RELEASE) for job in jobs]
            await self.link.ask(self.link.make_request("ack", bodies.ack(settlements)))

    async def _renew(self, messages: Sequence[Held], seconds: float | None) -> None:
        """Renew leases in one request, which is given up early enough for a second attempt.

        Messages that still wait for a handler are dropped if their lease is lost, and released if
        renewals can't keep it much longer.
        """
        reports = [message.report for message in messages]
        jobs = [message.job for message in messages]
        body = bodies.renew(zip(jobs, reports, strict=True), seconds)
        ends_in = min(message.remaining for message in messages)
        patience = min(2 * GRACE, max(LEAST_PATIENCE, ends_in * 2 / 3))
        for message in messages:
            message.is_unanswered = True
        try:
            answer = await self.link.ask(self.link.make_request("renew", body, patience))
        except Refused:
            for message in messages:
                message.is_unanswered = False
            raise
        renewals = bodies.renewals(answer, len(messages))
        for message, report, left in zip(messages, reports, renewals, strict=True):
            if left is Status.LOCKED:
                continue  # The next renewal comes soon. Until then it counts as unanswered.
            message.is_unanswered = False
            if isinstance(left, float):
                message.renewed(answer.sent_at + left, report)
                if left < message.job.lease_seconds * (1 - WAITING_SHARE):
                    message.give_back()
            else:
                message.revoked = True
                message.give_back()
