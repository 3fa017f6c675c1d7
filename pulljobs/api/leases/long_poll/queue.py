"""Queue of the pulls of one consumer in this process, which refuses those above `max_waiting`."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pulljobs import emission, pulling
from pulljobs.api import access_refusals, exceptions
from pulljobs.api.leases.long_poll.pending import (
    ClaimLimit,
    PendingPull,
    PullAnswer,
    PullReason,
    lease_duration_of,
    reason_of,
    token_digests_of,
)
from pulljobs.api.leases.long_poll.waiter_row import WaiterRow
from pulljobs.api.leases.owned_items import recent_claims
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer, Lease
from pulljobs.pulling import LIMITED_POLL, Claim, Puller
from pulljobs.storage import leases, listen
from pulljobs.storage.rows import Refusal

if TYPE_CHECKING:
    from pulljobs.api.leases.long_poll.waiters import Waiters

IDLE_SECONDS: Final = 60.0
SHORTEST_PAUSE: Final = 0.001
SMALL_GROUP: Final = 8
"""Number of pulls that are collected for one claim even if few jobs are expected."""
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0

T = TypeVar("T")


class WaiterQueue:
    """Queue of one consumer's pulls, on the event loop of the waiters, with one claim at a time.

    While long polls wait, this process is a waiter of the consumer, with a row in the database.
    """

    def __init__(self, waiters: "Waiters", consumer: Consumer) -> None:
        self._waiters = waiters
        self._puller = Puller(settings().DATABASE, consumer, Lease.Via.PULL)
        self.row = WaiterRow(waiters, self._puller)
        self._woken = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._failures = 0
        self._supply = 0
        """Number of jobs of the last claim."""
        self._is_dry = False
        """True if the last claim left no job available, until the queue is woken."""
        self._limit = ClaimLimit()
        # Dicts keep the order, and remove an entry in constant time.
        self.pulls: dict[PendingPull, None] = {}
        self._immediate: dict[PendingPull, None] = {}
        """Pulls of the queue that are no long polls and are answered after the next claim."""
        self.joined_at = 0.0

    @property
    def consumer(self) -> Consumer:
        """Consumer of the queue, with the values that the newest request has read."""
        return self._puller.consumer

    @property
    def is_idle(self) -> bool:
        """True if the queue can be removed: it is empty, has no row, and got no pull recently."""
        is_empty = not self.pulls and not self.row.registered_until
        return is_empty and time.monotonic() - self.joined_at > IDLE_SECONDS

    @property
    def waiting(self) -> int:
        """Number of long polls in the queue."""
        return len(self.pulls) - len(self._immediate)

    def join(self, pull: PendingPull) -> None:
        """Append a pull and start a claim, after the current claim if there is any.

        A long poll that joins others starts none if the last claim left no job and the row counts
        the poll already.
        """
        self._puller.consumer = pull.consumer
        self.joined_at = time.monotonic()
        self.pulls[pull] = None
        if pull.waits:
            loop = asyncio.get_running_loop()
            pull.timer = loop.call_later(pull.asked.expires, self._expire, pull)
            self.row.most_waiting = max(self.row.most_waiting, self.waiting)
        else:
            self._end_repeated(pull)
            self._immediate[pull] = None
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        elif not (self._is_dry and pull.waits and len(self.pulls) <= self.row.registered):
            self.wake()

    def _end_repeated(self, pull: PendingPull) -> None:
        """End the long polls in the queue that have the RequestID of this pull: it repeats them.

        The client has given them up. Under WSGI a server does not notice that it disconnected.
        """
        for repeated in self._find_repeats(pull):
            if repeated.waits:
                self._answer(repeated, PullAnswer(PullReason.TIMEOUT))

    def _find_repeats(self, pull: PendingPull) -> list[PendingPull]:
        """Return the pulls of the queue that have the RequestID of this pull, if it has one."""
        id = pull.asked.request_id
        return [] if id is None else [each for each in self.pulls if each.asked.request_id == id]

    def drop(self, pull: PendingPull) -> None:
        """Remove a pull from the queue and stop its timer."""
        self.pulls.pop(pull, None)
        self._immediate.pop(pull, None)
        if pull.timer is not None:
            pull.timer.cancel()

    def wake(self) -> None:
        """Start the next claim, because a job may be available."""
        self._is_dry = False
        self._woken.set()

    def end(self, refusal: Exception) -> None:
        """Answer all pulls with a refusal."""
        for pull in self._remove(self.pulls):
            pull.refuse(refusal)

    def end_outdated(self, pulls: Iterable[PendingPull], present: Consumer) -> None:
        """Refuse those of `pulls` that sent tokens which the consumer or its channel no longer has.

        `present` is the consumer as it is stored now."""
        digests = token_digests_of(present)  # Once, because thousands of pulls may wait.
        outdated = [pull for pull in pulls if pull.token_digests != digests and pull in self.pulls]
        for pull in self._remove(outdated):
            pull.refuse(access_refusals.token_replaced())

    def stop(self) -> None:
        """Answer all long polls with the reason that the server shuts down."""
        for pull in self._remove([pull for pull in self.pulls if pull.waits]):
            pull.answer(PullAnswer(PullReason.SERVER_SHUTDOWN))

    async def wait_for_claim(self) -> None:
        """Wait until the claim in progress, if any, has ended. The queue must be empty."""
        self.wake()
        if self._serving is not None:
            await self._serving

    async def _serve(self) -> None:
        while self.pulls:
            self._woken.clear()
            pause = await self._pass()
            # Less than half of the cost of `wait_for`, which starts a task.
            timer = asyncio.get_running_loop().call_later(pause, self._woken.set)
            await self._woken.wait()
            timer.cancel()
            if not self._immediate:
                await asyncio.sleep(max(0.0, self._limit.quiet_until - time.monotonic()))

    async def _pass(self) -> float:
        """Claim and distribute available jobs.

        Return the seconds after which to do the next pass, unless the queue is woken earlier.
        """
        try:
            due = await self._claim_all()
            if self.waiting and await self._register():
                due = await self._claim_all()
                due = listen.NEW if due is None else min(due, listen.NEW)
        except Exception as error:
            return self._handle_failure(error)
        self._failures = 0
        longest = self._longest_pause()
        return longest if due is None else min(max(due.total_seconds(), SHORTEST_PAUSE), longest)

    def _longest_pause(self) -> float:
        if self._limit.limited_until:
            return LIMITED_POLL.total_seconds()
        return settings().MAX_FETCH_INTERVAL.total_seconds() * random.uniform(0.7, 1)

    def _handle_failure(self, error: Exception) -> float:
        """Refuse the pulls that do not wait, after an error of a claim.

        Return the seconds after which to claim again for the long polls.
        """
        refusal = exceptions.unreachable() if exceptions.is_outage(error) else error
        for pull in self._remove(self._immediate):
            pull.refuse(refusal)
        self._failures = min(self._failures + 1, 10)
        pause = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1)
        self._waiters.report("claims over HTTP", error, pause)
        return pause

    async def _claim_all(self) -> timedelta | None:
        """Claim for the pulls in turn until no pull or no job is left.

        Return the time until the next job is due, or None if none is known or no pull is left.
        """
        while group := self._next_group():
            immediate = list(self._immediate)
            claim = await self._on_thread(self._prepare_claim(group))
            self._limit = ClaimLimit.met_by(claim)
            self._supply = len(claim.jobs)
            await self._distribute(group, claim)
            if claim.refusal is Refusal.DELETED:
                self.end(exceptions.consumer_deleted())
            elif not claim.more and not self._can_continue(group, claim):
                self._is_dry = True
                self._answer_empty(immediate, claim)
                return claim.next_due
        return None

    def _next_group(self) -> list[PendingPull]:
        """Return the first pulls of the queue that one claim can serve together.

        They are at most SMALL_GROUP, or twice as many as the jobs of the last claim if that is
        more, because collecting hundreds of pulls takes longer than answering one.
        """
        group: list[PendingPull] = []
        wanted, most = 0, settings().MAX_BATCH
        for pull in self.pulls:
            wanted += pull.asked.batch
            fits = wanted <= most and pull.asked.shares_claim(group[0].asked) if group else True
            if not fits or len(group) >= max(SMALL_GROUP, 2 * self._supply):
                break
            group.append(pull)
            if not pull.asked.is_plain:
                break
        return group

    def _prepare_claim(self, group: list[PendingPull]) -> Callable[[], Claim]:
        """Return a function that makes one claim for all pulls of a group.

        For a single pull, log lines of the claim have the id of its request.
        """
        claim = partial(self._claim, group)
        return claim if len(group) > 1 else partial(group[0].context.run, claim)

    def _claim(self, group: list[PendingPull]) -> Claim:
        asked = group[0].asked
        claim = self._puller.claim(
            sum(pull.asked.batch for pull in group),
            lease_duration=lease_duration_of(group[0]),
            max_bytes=asked.max_bytes,
            request_id=asked.request_id,
        )
        recent_claims.note(self.consumer.pk, claim, self._puller.guards)
        return claim

    async def _distribute(self, group: list[PendingPull], claim: Claim) -> None:
        """Answer the pulls of a group with their shares of the claimed jobs, in order.

        Pulls without a share stay in the queue, unless MaxBytes is too small or the claim is spent.
        Jobs that are left over, because a client has disconnected, are released.
        """
        rest = claim.jobs
        reason_if_short = reason_of(claim, PullReason.OK)
        for pull in group:
            wanted = len(rest) if claim.repeated else pull.asked.batch
            share, beyond = rest[:wanted], rest[wanted:]
            reason = PullReason.OK if len(share) == pull.asked.batch else reason_if_short
            if share and self._give(pull, reason, claim._replace(jobs=share)):
                rest = beyond
            elif claim.refusal is Refusal.MAX_BYTES:
                self._answer(pull, PullAnswer(PullReason.MAX_BYTES))
            elif claim.is_spent:
                self._answer(pull, PullAnswer(pull.reason_if_empty))
            elif not rest:
                break
        if rest:
            await self._on_thread(partial(give_back, group[0], claim._replace(jobs=rest)))

    def _give(self, pull: PendingPull, reason: PullReason, claim: Claim) -> bool:
        """Answer a pull, and all pulls in the queue with its RequestID, with the jobs of a claim.

        Return True if one of their requests still waited for the answer.
        """
        repeats = dict.fromkeys([pull, *self._find_repeats(pull)])
        is_repeated = claim.repeated or len(repeats) > 1
        answer = PullAnswer(reason, claim._replace(repeated=is_repeated))
        received = [self._answer(repeat, answer) for repeat in repeats]
        return any(received)

    def _can_continue(self, group: list[PendingPull], claim: Claim) -> bool:
        """Return True if a claim that reported no more jobs may have left some for other pulls.

        MaxBytes ended it early, or it served a single pull with a MaxBytes or RequestID.
        """
        if claim.refusal is Refusal.MAX_BYTES:
            return True
        return claim.taken is not None and not group[0].asked.is_plain

    def _answer_empty(self, immediate: list[PendingPull], claim: Claim) -> None:
        empty = claim._replace(taken=None, jobs=[])
        for pull in self._remove(immediate):
            pull.answer(PullAnswer(reason_of(claim, pull.reason_if_empty), empty))

    async def _register(self) -> bool:
        """Write the row of the waiter, for notifications, unless a valid row counts all long polls.

        Refuse the long polls above `max_waiting`. Return True if there was no valid row before: the
        queue then has to claim again, for jobs that were published without a notification.
        """
        async with self.row.lock:
            has_lapsed = time.monotonic() >= self.row.registered_until
            if self.waiting <= self.row.registered and not has_lapsed:
                return False
            if self._refuse_excess(await self.row.write()):
                await self.row.write()  # Else the excess would count in other processes.
            return has_lapsed

    def _refuse_excess(self, elsewhere: int) -> int:
        """Refuse the newest long polls above the consumer's limit, and return their number.

        `elsewhere` is the number of long polls that wait in other processes.
        """
        room = max(self.consumer.max_waiting - elsewhere, 0)
        waiting = [pull for pull in self.pulls if pull.waits]
        excess = self._remove(waiting[room:])
        self.row.most_waiting = self.waiting
        for pull in excess:
            pull.refuse(exceptions.too_many_waiting(self.consumer.max_waiting))
        return len(excess)

    def _expire(self, pull: PendingPull) -> None:
        self.drop(pull)
        if self._failures:
            pull.refuse(exceptions.unreachable())
        else:
            pull.answer(self._limit.answer_expired())

    def _answer(self, pull: PendingPull, answer: PullAnswer) -> bool:
        self.drop(pull)
        return pull.answer(answer)

    def _remove(self, pulls: Iterable[PendingPull]) -> list[PendingPull]:
        removed = list(pulls)
        for pull in removed:
            self.drop(pull)
        return removed

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await self._waiters.run(work, claiming_for=self.consumer.pk)


def give_back(pull: PendingPull, claim: Claim) -> None:
    """Release the jobs of a claim whose pull could not be answered.

    They stay claimed if a repeated request of the client may have received them.
    """
    if claim.taken is None or claim.repeated:
        return
    token = claim.taken.lease_token
    if pull.asked.request_id is None or leases.forget_request(settings().DATABASE, token):
        released = [outcomes.release(Held(job.id, token)) for job, _message in claim.jobs]
        pulling.finish(released, emission.names_by_job(pull.consumer, released))


def give_back_answered(pull: PendingPull, run: Callable[[Callable[[], None]], Any]) -> None:
    """Release the jobs in an answer that was not sent, because the client of the pull is gone.

    `run` runs a function on a thread with a connection.
    """
    future = pull.future
    if not future.cancelled() and future.exception() is None:
        claim = future.result().claim
        if claim is not None:
            run(partial(give_back, pull, claim))
