"""Fetcher: claims jobs for every consumer in turn, as many as its pool has room for."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from itertools import repeat
from typing import Final
from uuid import UUID

from django.db import DatabaseError, InterfaceError

from pulljobs import pulling, run_limits
from pulljobs.claimed_jobs import Grant
from pulljobs.conf import Settings
from pulljobs.engine import outcomes
from pulljobs.engine.circuit import Result
from pulljobs.engine.throttle import Throttle
from pulljobs.handlers import ClaimedJob
from pulljobs.loops import JITTER, give_way
from pulljobs.models import Consumer
from pulljobs.pulling import LIMITED_POLL, QUIET, Claim
from pulljobs.storage import listen, sessions
from pulljobs.storage.backlog import consumers_with_jobs
from pulljobs.storage.rows import HeldJob, Refusal
from pulljobs.worker.circuits import Circuits
from pulljobs.worker.in_flight import InFlightJobs, payload_bytes
from pulljobs.worker.isolation import Isolation
from pulljobs.worker.job_pool import LONGEST_WAIT
from pulljobs.worker.renewer import renew_after, renew_now
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.rotation import FetchRotation
from pulljobs.worker.subscriptions import ConsumerSubscription

WAITER_MARGIN: Final = timedelta(seconds=5)
SHORTEST_PAUSE: Final = 0.001
NEVER: Final = float("inf")
USED_UP: Final = "Not run: its retries or deliveries were used up before."
MANY_DUE: Final = 50
"""Number of due consumers above which one statement finds those that have jobs."""
FEW_POLLS: Final = 10
"""Polls in a second above which one statement first finds the consumers that have jobs."""
WAITERS_PER_SECOND: Final = 200
"""Rows of waiters that are renewed each second. Those of many consumers last longer."""
POLLS_PER_SECOND: Final = 50
"""Polls of all consumers together. A worker with many consumers polls each of them less often."""


class Fetcher:
    """Loop that claims for the subscriptions that are due, and sleeps until the next is due."""

    def __init__(
        self,
        read_subscriptions: Callable[[], Sequence[ConsumerSubscription]],
        limits: Settings,
        in_flight: InFlightJobs,
        buffer: ResultBuffer,
        circuits: Circuits,
        *,
        node_id: UUID,
        stopping: Callable[[], bool],
        on_drained: Callable[[], None] | None = None,
    ) -> None:
        """`read_subscriptions` returns another list object whenever subscriptions have changed.

        `on_drained` is for a worker with BURST or ONCE: it is called when nothing is left to do.
        """
        self._read_subscriptions, self._limits = read_subscriptions, limits
        self.rotation = FetchRotation()
        self.rotation.serve(read_subscriptions())  # For the first heartbeat's report.
        self._node_id, self._in_flight = node_id, in_flight
        self._buffer, self._circuits = buffer, circuits
        self._isolation = Isolation(in_flight, buffer)
        self._stopping, self._on_drained = stopping, on_drained
        self._looked: set[ConsumerSubscription] = set()
        """Subscriptions already claimed for, by which a worker with BURST or ONCE knows its end."""
        self._has_claimed = True
        """True if jobs may have been claimed since `_begins_last_look` last returned True."""
        self._registered_until = 0.0
        self._polled_until = 0.0
        """Time of the next search for due subscriptions, until which idle ones were postponed."""
        self._look_again_at = NEVER
        """Time to look for jobs published during the registration, which woke no process."""
        self._unanswered = False
        """True after a claim that may have been committed although its answer was lost."""

    def tick(self) -> float:
        """Claim for due subscriptions, half a second at most. Return the seconds to sleep."""
        self._give_back_unanswered()
        self._update_subscriptions()
        self._put_off_idle()
        self._isolation.start_next()
        for subscription, room, ticket in self._due():
            self._look(subscription, room, ticket)
            if self._register():  # Many claims may take longer than a registration lasts.
                self.rotation.look_at_all()
        return self._pause()

    def prepare(self) -> None:
        """Have the server plan the statement of claims, so that the first job need not wait."""
        for subscription in self.rotation.subscriptions[:1]:
            subscription.puller.prepare(subscription.lease_duration)

    def consumer_paths(self) -> list[str]:
        """Return the consumers that this process serves, as channel/consumer."""
        return [each.handler.path for each in self.rotation.subscriptions]

    def release_waiting(self) -> None:
        """Release the crash suspects that have not started."""
        self._isolation.release_waiting()

    def _update_subscriptions(self) -> None:
        subscriptions = self._read_subscriptions()
        if subscriptions is not self.rotation.subscriptions:
            self.rotation.serve(subscriptions)
            self._registered_until = 0.0

    def _put_off_idle(self) -> None:
        """Ask in one statement which of many due consumers have jobs, and postpone the others."""
        now = time.monotonic()
        due = self._find_many_due(now)
        if not due:
            return
        asked = [subscription.puller.consumer.pk for subscription in due]
        busy = consumers_with_jobs(self._limits.DATABASE, asked)
        for subscription in due:
            if subscription.puller.consumer.pk not in busy:
                self._looked.add(subscription)
                self.rotation.plan_look(subscription, now + self._poll_seconds())

    def _find_many_due(self, now: float) -> list[ConsumerSubscription]:
        """Return the subscriptions for which one statement looks for jobs before any claim.

        If more than `MANY_DUE` are due, these are all that are due. Otherwise, once a second, they
        are those to be polled in that second, if there are more than `FEW_POLLS`. Subscriptions
        with a low-water mark are then left out: their claims cost less than the statement.
        """
        due = self.rotation.find_due(now)
        if len(due) > MANY_DUE:
            return due
        if self._polled_until == self.rotation.search_at:
            return []
        self._polled_until = self.rotation.search_at
        polls = [each for each in self.rotation.find_polls() if each.puller.starts_at_head]
        return polls if len(polls) > FEW_POLLS else []

    def _due(self) -> Iterator[tuple[ConsumerSubscription, int, int]]:
        """Yield (due subscription, number of jobs to claim, ticket).

        The ticket is the number of the last change of the consumer's circuits.
        """
        for subscription in self.rotation.due():
            # The ticket first, because the circuit may open at any moment.
            ticket = self._circuits.get(subscription.handler).ticket
            if (room := self._room(subscription)) > 0:
                yield subscription, room, ticket
            elif subscription.pool.reports_room and subscription.room() <= 0:
                self.rotation.plan_look(subscription, time.monotonic() + self._poll_seconds())

    def _room(self, subscription: ConsumerSubscription) -> int:
        """Return how many jobs to claim for a subscription now. Zero or less means none."""
        is_over = self._limits.ONCE and subscription in self._looked
        if self._stopping() or is_over or not self._isolation.is_empty:
            return 0
        if self._throttle(subscription).is_unwritten:
            return 0  # The write of the throttle wakes all waiters, this process among them.
        if (in_flight_room := self._in_flight.room(subscription.payload_bytes)) <= 0:
            return 0  # The pool is not asked: it would wake the fetcher once it has free slots.
        room = min(self._limits.FETCH_BATCH, in_flight_room, subscription.room())
        allowed = self._circuits.get(subscription.handler).room()
        return room if allowed is None else min(room, allowed)

    def _look(self, subscription: ConsumerSubscription, room: int, ticket: int) -> None:
        # Set first: a claim that fails was a turn, too.
        longest = self._limits.MAX_FETCH_INTERVAL.total_seconds()
        self.rotation.plan_look(subscription, time.monotonic() + longest)
        claim = self._claim(subscription, room, ticket)
        self._looked.add(subscription)
        self._has_claimed = self._has_claimed or claim.more or claim.taken is not None
        now = time.monotonic()
        self.rotation.plan_look(subscription, now + self._seconds_to_next(claim))
        limited = 0.0 if claim.limited_for is None else claim.limited_for.total_seconds()
        subscription.limited_until = now + limited
        subscription.quiet_until = now + min(limited, QUIET.total_seconds())

    def _seconds_to_next(self, claim: Claim) -> float:
        if claim.more:
            return self._limits.MIN_FETCH_INTERVAL.total_seconds()
        if claim.limited_for is not None:
            return min(claim.limited_for, LIMITED_POLL).total_seconds()
        poll = self._poll_seconds()
        return poll if claim.next_due is None else min(poll, claim.next_due.total_seconds())

    def _poll_seconds(self) -> float:
        interval = self._limits.MAX_FETCH_INTERVAL.total_seconds()
        shortest = len(self.rotation.subscriptions) / POLLS_PER_SECOND
        return max(interval, shortest) * random.uniform(1 - JITTER, 1)

    def _pause(self) -> float:
        if self._begins_last_look() or self._register() or self._has_to_look_again():
            # For jobs that came before the last flush, or were committed after the last claim.
            self.rotation.look_at_all()
            return 0
        now = time.monotonic()
        soon = self.rotation.soon(now)
        waits = [self._look_again_at - now, self.rotation.search_at - now]
        waits += [
            subscription.look_at - now
            for subscription in soon
            if subscription.look_at > now or self._room(subscription)
        ]
        waits += [wait for wait in self._circuits.waits(each.handler for each in soon) if wait > 0]
        pause = min([self._limits.MAX_FETCH_INTERVAL.total_seconds(), *waits])
        return max(pause, SHORTEST_PAUSE) if pause > 0 else 0

    def _has_to_look_again(self) -> bool:
        if time.monotonic() < self._look_again_at:
            return False
        self._look_again_at = NEVER
        return True

    def _begins_last_look(self) -> bool:
        """Return True if a worker with BURST has to claim for all subscriptions once more.

        It has to if no job is in flight, and claims found jobs since this last returned True. If
        they found none, or ONCE is set, call `on_drained` after the claims for all subscriptions.
        """
        if self._on_drained is None or len(self._in_flight):
            return False
        if self._has_claimed and not self._limits.ONCE:
            self._has_claimed = False
            self._looked.clear()
            return True
        if not any(
            self._room(subscription) > 0
            for subscription in self.rotation.subscriptions
            if subscription not in self._looked
        ):
            self._on_drained()
        return False

    def _register(self) -> bool:
        """Register as a waiter, so that publishers wake this process.

        Return True if it was not registered for a while, so that jobs may have come unnoticed.
        """
        now = time.monotonic()
        # Longer than this loop may sleep, because an expired waiter is not woken.
        needed = self._limits.MAX_FETCH_INTERVAL + WAITER_MARGIN
        if now + needed.total_seconds() < self._registered_until:
            return False
        using = self._limits.DATABASE
        if sessions.behind_pooler(using):
            return False
        sessions.relax(using, False)
        consumers = [each.puller.consumer.pk for each in self.rotation.subscriptions]
        spread = timedelta(seconds=len(consumers) / WAITERS_PER_SECOND)
        patience = needed + max(WAITER_MARGIN, spread)
        listen.wait(using, consumers, self._node_id, patience)
        lapsed = now > self._registered_until
        if lapsed:
            self._look_again_at = now + listen.NEW.total_seconds()
        self._registered_until = now + patience.total_seconds()
        return lapsed

    def _give_back_unanswered(self) -> None:
        """Release the jobs of a claim whose answer was lost with its connection."""
        if self._unanswered:
            pulling.give_back(self._node_id, but=self._in_flight.lease_tokens())
        self._unanswered = False

    def _claim(self, subscription: ConsumerSubscription, room: int, ticket: int) -> Claim:
        handler = subscription.handler
        time_limit = handler.timeout or self._limits.HANDLER_TIMEOUT
        if handler.limits_of is not None:
            time_limit = max(time_limit, run_limits.longest_timeout())
        subscription.puller.timeout = LONGEST_WAIT + time_limit
        sessions.relax(self._limits.DATABASE, subscription.may_be_claimed_twice)
        before = time.monotonic()
        try:
            claim = subscription.puller.claim(room, lease_duration=subscription.lease_duration)
        except (DatabaseError, InterfaceError):
            self._unanswered = True
            raise
        self._note_throttle(subscription, claim, before)
        if claim.taken is not None:
            grant = self._grant(subscription, before, ticket)
            rows, messages = zip(*claim.jobs, strict=True)
            helds = outcomes.all_held(claim.taken.lease_token, [row.id for row in rows])
            jobs = list(map(ClaimedJob, rows, messages, helds, repeat(grant)))
            self._in_flight.add(jobs)
            subscription.payload_bytes = payload_bytes(jobs) / len(jobs)
            self._hand_over(subscription, *self._admitted(subscription, ticket, rows, jobs))
            if len(self._in_flight) == len(jobs):
                give_way()  # The process was idle.
        return claim

    def _admitted(
        self,
        subscription: ConsumerSubscription,
        ticket: int,
        rows: Sequence[HeldJob],
        jobs: list[ClaimedJob],
    ) -> tuple[Sequence[HeldJob], list[ClaimedJob]]:
        """Return the rows and jobs that the circuit admits, and release the others.

        The circuit gives for each of those the time after which it can be claimed again.
        """
        back = self._circuits.get(subscription.handler).admit(ticket, jobs)
        if not back:
            return rows, jobs
        for job, seconds in back.items():
            self._buffer.give_back(job, timedelta(seconds=seconds))
        admitted = [pair for pair in zip(rows, jobs, strict=True) if pair[1] not in back]
        return [row for row, _job in admitted], [job for _row, job in admitted]

    def _grant(self, subscription: ConsumerSubscription, claimed_at: float, ticket: int) -> Grant:
        lease_duration = subscription.lease_duration
        longest = max(lease_duration, subscription.puller.max_lease)
        return Grant(
            handler=subscription.handler,
            lease_duration=lease_duration,
            claimed_at=claimed_at,
            hard_end=claimed_at + longest.total_seconds(),
            start_by=claimed_at + LONGEST_WAIT.total_seconds(),
            renew_after=renew_after(lease_duration),
            renew=renew_now,
            stopping=self._stopping,
            run_time=subscription.run_time,
            circuit=self._circuits.get(subscription.handler),
            ticket=ticket,
            throttle=self._throttle(subscription),
        )

    def _throttle(self, subscription: ConsumerSubscription) -> Throttle:
        return self._buffer.throttles.get(subscription.puller.consumer.pk)

    def _note_throttle(
        self, subscription: ConsumerSubscription, claim: Claim, before: float
    ) -> None:
        """Begin or end the throttle in this process's memory, as a claim sent at `before` shows."""
        throttle = self._throttle(subscription)
        if claim.refusal is Refusal.THROTTLED and claim.next_due is not None:
            throttle.note_refused(claim.next_due.total_seconds())
        elif throttle.is_known and claim.taken is not None:
            throttle.note_claimed(before, (message.key for _row, message in claim.jobs))

    def _hand_over(
        self, subscription: ConsumerSubscription, rows: Sequence[HeldJob], jobs: list[ClaimedJob]
    ) -> None:
        """Give the jobs to the pool, except crash suspects and jobs that are over their limits.

        A job is over its limits if it has no deliveries or retries left. It is retried without a
        run, which makes it DEAD. If there is a suspect, the other jobs are released.
        """
        used_up, suspects = _find_special(subscription.puller.consumer, rows, jobs)
        for job in used_up:
            # Not run again: a limit was lowered, or no run has reported an outcome.
            job.verdict = Result.NEUTRAL
            self._buffer.add(job, outcomes.retry(job.held, USED_UP))
        self._isolation.add(subscription.pool, suspects)
        special = {*used_up, *suspects}
        others = [job for job in jobs if job not in special] if special else jobs
        if suspects:
            for job in others:  # A suspect would have to wait for them.
                self._buffer.release(job)
        else:
            subscription.pool.take(others)


def _find_special(
    consumer: Consumer, rows: Sequence[HeldJob], jobs: Sequence[ClaimedJob]
) -> tuple[list[ClaimedJob], list[ClaimedJob]]:
    """Return the jobs that are over their limits, and the crash suspects among the others."""
    deliveries, retries = consumer.max_deliveries, consumer.retries
    used_up, suspects = list[ClaimedJob](), list[ClaimedJob]()
    for (_, _, _, tried, claimed, suspect), job in zip(rows, jobs, strict=True):
        if claimed > deliveries or (tried > retries and _is_over(job, tried)):
            used_up.append(job)
        elif suspect:
            suspects.append(job)
    return used_up, suspects


def _is_over(job: ClaimedJob, tried: int) -> bool:
    """Return True unless the job has its own limit of retries, and it allows `tried` of them."""
    own = job.limits.max_retries
    return own is None or tried > own
