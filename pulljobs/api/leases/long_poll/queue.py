"""The pulls that wait for one consumer in this process: first come, first served."""

import asyncio
import random
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pulljobs import emission, pulling
from pulljobs.api import exceptions, problems
from pulljobs.api.leases.long_poll.pending import Answer, Pull, Why
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.engine.telemetry import LoopFailed, emit
from pulljobs.models import Consumer, Lease
from pulljobs.pulling import Claim, Puller
from pulljobs.storage import jobs, listen
from pulljobs.storage.rows import Refusal

if TYPE_CHECKING:
    from pulljobs.api.leases.long_poll.waiters import WaitingRoom

PATIENCE: Final = timedelta(seconds=15)
"""How long our row counts without being renewed."""
IDLE_SECONDS: Final = 60.0
SOONEST: Final = 0.001
FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 2.0

REFUSALS: Final = {
    Refusal.PAUSED: Why.PAUSED,
    Refusal.MAX_IN_FLIGHT: Why.MAX_IN_FLIGHT,
    Refusal.MAX_BYTES: Why.MAX_BYTES,
}

T = TypeVar("T")


class Line:
    """Used on the event loop of its room; one claim at a time, however many pulls wait."""

    def __init__(self, room: "WaitingRoom", consumer: Consumer) -> None:
        self._room = room
        self._using = settings().DATABASE
        self._puller = Puller(self._using, consumer, Lease.Via.PULL)
        self._wakened = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._failures = 0
        self._dry = False
        """Nothing was there after we had registered: whatever comes wakes us."""
        self._row = asyncio.Lock()
        # Dicts, for they keep the order and forget one at once.
        self.pulls: dict[Pull, None] = {}
        self._asking: dict[Pull, None] = {}
        """Those of them that do not linger."""
        self.registered = 0
        """Pulls that our row says wait here."""
        self.registered_until = 0.0
        """On the monotonic clock; 0: there is no row."""
        self.joined_at = 0.0

    @property
    def consumer(self) -> Consumer:
        return self._puller.consumer

    @property
    def is_idle(self) -> bool:
        """Nobody has waited for a while, and nothing of it is left."""
        idle = not self.pulls and not self.registered_until
        return idle and time.monotonic() - self.joined_at > IDLE_SECONDS

    @property
    def lingering(self) -> int:
        return len(self.pulls) - len(self._asking)

    def join(self, pull: Pull) -> None:
        self._puller.consumer = pull.consumer  # The newest look at its row.
        self.joined_at = time.monotonic()
        self.pulls[pull] = None
        if pull.lingers:
            loop = asyncio.get_running_loop()
            pull.timer = loop.call_later(pull.asked.expires, self._expire, pull)
        else:
            self._asking[pull] = None
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        elif not (self._dry and pull.lingers and len(self.pulls) <= self.registered):
            self.wake()

    def drop(self, pull: Pull) -> None:
        self.pulls.pop(pull, None)
        self._asking.pop(pull, None)
        if pull.timer is not None:
            pull.timer.cancel()

    def wake(self) -> None:
        """There may be something to claim."""
        self._dry = False
        self._wakened.set()

    def end(self, refusal: Exception) -> None:
        """For all who wait."""
        for pull in self._leave(self.pulls):
            pull.refuse(refusal)

    def stop(self) -> None:
        """Who lingers is told that the server shuts down."""
        for pull in self._leave([pull for pull in self.pulls if pull.lingers]):
            pull.answer(Answer(Why.SERVER_SHUTDOWN))

    async def ended(self) -> None:
        """Once nothing goes on any more; nobody must be in line."""
        self.wake()
        if self._serving is not None:
            await self._serving

    async def _serve(self) -> None:
        while self.pulls:
            self._wakened.clear()
            pause = await self._pass()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wakened.wait(), pause)

    async def _pass(self) -> float:
        """Deal out what is there; the seconds until the next look, unless something wakes us."""
        try:
            due = await self._claim_all()
            if self.lingering and await self._register():
                due = await self._claim_all()
                due = listen.NEW if due is None else min(due, listen.NEW)
        except Exception as error:
            return self._after(error)
        self._failures = 0
        longest = settings().MAX_FETCH_INTERVAL.total_seconds() * random.uniform(0.7, 1)
        return longest if due is None else min(max(due.total_seconds(), SOONEST), longest)

    def _after(self, error: Exception) -> float:
        """Who lingers goes on to, for it may pass; the others are told now."""
        unreachable = isinstance(error, exceptions.UNREACHABLE)
        for pull in self._leave(self._asking):
            pull.refuse(exceptions.unreachable() if unreachable else error)
        self._failures = min(self._failures + 1, 10)
        pause = min(FIRST_PAUSE * 2.0**self._failures, LONGEST_PAUSE) * random.uniform(0.5, 1)
        emit(LoopFailed("claims over HTTP", f"{type(error).__name__}: {error}".strip(), pause))
        return pause

    async def _claim_all(self) -> timedelta | None:
        """Claim until nothing is left for those in line; when something falls due."""
        while party := self._party():
            asking = list(self._asking)
            claim = await self._on_thread(self._claiming(party))
            await self._deal(party, claim)
            if claim.refusal is Refusal.DELETED:
                self.end(problems.consumer_deleted())
            elif not claim.more and not self._goes_on(party, claim):
                self._dry = True
                self._tell(asking, claim)
                return claim.next_due
        return None

    def _party(self) -> list[Pull]:
        """Those at the head of the line whose claim can be one."""
        party: list[Pull] = []
        wanted = 0
        for pull in self.pulls:
            wanted += pull.asked.batch
            if party and not (pull.asked.is_plain and wanted <= settings().MAX_BATCH):
                break
            party.append(pull)
            if not pull.asked.is_plain:
                break
        return party

    def _claiming(self, party: list[Pull]) -> Callable[[], Claim]:
        """The claim; what is logged of one for a single request bears its id."""
        claim = partial(self._claim, party)
        return claim if len(party) > 1 else partial(party[0].context.run, claim)

    def _claim(self, party: list[Pull]) -> Claim:
        asked = party[0].asked
        return self._puller.claim(
            sum(pull.asked.batch for pull in party),
            lease_duration=lease_of(party[0]),
            max_bytes=asked.max_bytes,
            request_id=asked.request_id,
        )

    async def _deal(self, party: list[Pull], claim: Claim) -> None:
        """What was meant for those who have left meanwhile goes back as if never taken."""
        rest = claim.jobs
        short = _why(claim, Why.OK)
        for pull in party:
            wanted = len(rest) if claim.repeated else pull.asked.batch
            share, beyond = rest[:wanted], rest[wanted:]
            why = Why.OK if len(share) == pull.asked.batch else short
            if share and self._give(pull, why, claim._replace(jobs=share)):
                rest = beyond
            elif claim.refusal is Refusal.MAX_BYTES:
                self._answer(pull, Answer(Why.MAX_BYTES))
            elif claim.is_spent:
                self._answer(pull, Answer(pull.otherwise))
        if rest:
            await self._on_thread(partial(give_back, party[0], claim._replace(jobs=rest)))

    def _give(self, pull: Pull, why: Why, claim: Claim) -> bool:
        """To it and to its repeats, wherever they stand in line; whether anybody took it."""
        same = {pull: None}
        if (id := pull.asked.request_id) is not None:
            same |= dict.fromkeys(one for one in self.pulls if one.asked.request_id == id)
        answer = Answer(why, claim._replace(repeated=claim.repeated or len(same) > 1))
        taken = [self._answer(one, answer) for one in same]
        return any(taken)

    def _goes_on(self, party: list[Pull], claim: Claim) -> bool:
        """Whether the next in line may get what this party could not, or did not ask for."""
        if claim.refusal is Refusal.MAX_BYTES:
            return True
        return claim.taken is not None and not party[0].asked.is_plain

    def _tell(self, asking: list[Pull], claim: Claim) -> None:
        for pull in self._leave(asking):
            pull.answer(Answer(_why(claim, pull.otherwise)))

    async def keep_count(self) -> None:
        """Renew our row, have it say how many wait here, or drop it when nobody does."""
        async with self._row:
            soon = time.monotonic() + PATIENCE.total_seconds() / 2
            if not self.registered_until:
                return
            if not self.lingering:
                self.registered, self.registered_until = 0, 0.0
                ids = [self.consumer.pk]
                await self._on_thread(partial(listen.leave, self._using, ids, self._room.node_id))
            elif self.lingering != self.registered or self.registered_until < soon:
                await self._write_row()

    async def _register(self) -> bool:
        """Be woken from now on, and count; whether that is news, so that we have to look again."""
        async with self._row:
            now = time.monotonic()
            if self.lingering <= self.registered and now < self.registered_until:
                return False
            lapsed = now >= self.registered_until
            if self._refuse_excess(await self._write_row()):
                await self._write_row()  # Else other processes would refuse theirs for those.
            return lapsed

    async def _write_row(self) -> int:
        """How many wait in other processes."""
        lingering, now = min(self.lingering, self.consumer.max_waiting), time.monotonic()
        args = [self.consumer.pk], self._room.node_id, PATIENCE, [lingering]
        elsewhere = await self._on_thread(partial(listen.wait, self._using, *args))
        self.registered, self.registered_until = lingering, now + PATIENCE.total_seconds()
        return elsewhere[self.consumer.pk]

    def _refuse_excess(self, elsewhere: int) -> int:
        """The newest go away where too many wait; how many."""
        room = max(self.consumer.max_waiting - elsewhere, 0)
        lingering = [pull for pull in self.pulls if pull.lingers]
        excess = self._leave(lingering[room:])
        for pull in excess:
            pull.refuse(problems.too_many_waiting(self.consumer.max_waiting))
        return len(excess)

    def _expire(self, pull: Pull) -> None:
        self.drop(pull)
        if self._failures:
            pull.refuse(exceptions.unreachable())
        else:
            pull.answer(Answer(Why.TIMEOUT))

    def _answer(self, pull: Pull, answer: Answer) -> bool:
        self.drop(pull)
        return pull.answer(answer)

    def _leave(self, pulls: Iterable[Pull]) -> list[Pull]:
        leaving = list(pulls)
        for pull in leaving:
            self.drop(pull)
        return leaving

    async def _on_thread(self, work: Callable[[], T]) -> T:
        return await self._room.run(work, claiming_for=self.consumer.pk)


def _why(claim: Claim, otherwise: Why) -> Why:
    return otherwise if claim.refusal is None else REFUSALS.get(claim.refusal, otherwise)


def lease_of(pull: Pull) -> timedelta:
    return pull.consumer.lease_duration + (pull.asked.incremental_timeout or timedelta())


def give_back(pull: Pull, claim: Claim) -> None:
    """Unless a repeat of the pull was told of it: that one's client may hold it by now."""
    if claim.taken is None or claim.repeated:
        return
    token = claim.taken.lease_token
    if pull.asked.request_id is None or jobs.forget_request(settings().DATABASE, token):
        released = [outcomes.release(Held(job.id, token)) for job, _message in claim.jobs]
        pulling.finish(released, emission.paths_of(pull.consumer, released))


def give_back_answered(pull: Pull, run: Callable[[Callable[[], None]], Any]) -> None:
    """What a request was answered that can't pass it on."""
    future = pull.future
    if not future.cancelled() and future.exception() is None:
        claim = future.result().claim
        if claim is not None:
            run(partial(give_back, pull, claim))
