"""One pass of the fetcher over consumers whose lanes have room again as soon as they are full."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest

from pulljobs.engine.circuit import Result
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Consumer, Job, Lease
from pulljobs.pulling import Claim, Puller
from pulljobs.states import Event
from pulljobs.worker import fetcher
from pulljobs.worker.circuits import Breakers
from pulljobs.worker.fetcher import LONGEST_PASS, URGENT_SHARE, Fetcher
from pulljobs.worker.in_flight import Holdings
from pulljobs.worker.job_pool import LONGEST_WAIT
from pulljobs.worker.result_buffer import Outbox
from pulljobs.worker.subscriptions import Source
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import SLACK
from tests.worker.claiming import limits

pytestmark = pytest.mark.django_db(transaction=True)


class Lane:
    """Takes one job at a time and has done it at once."""

    calls_back = True

    def __init__(self, on_room: Callable[["Lane"], None]) -> None:
        self._on_room = on_room
        self.taken: list[tuple[float, int]] = []
        self.jobs: list[ClaimedJob] = []
        self.looks = 0
        """It is asked for its room at each."""

    def room(self) -> int:
        self.looks += 1
        return 1

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        self.taken += [(time.monotonic(), job.id) for job in jobs]
        self.jobs += jobs
        self._on_room(self)


class WideLane(Lane):
    def room(self) -> int:
        return 10


class ShrinkingLane(Lane):
    """Whose handlers turn out to be slower than they were."""

    def __init__(self, on_room: Callable[[Lane], None]) -> None:
        super().__init__(on_room)
        self.rooms = [1, -1]

    def room(self) -> int:
        return self.rooms.pop(0) if self.rooms else 0


class Stand:
    """A fetcher with consumers of push; those who are read first are as many as at the start."""

    def __init__(self, *, burst: bool = False) -> None:
        settings = limits(MAX_HELD=100_000, MAX_FETCH_INTERVAL=timedelta(seconds=60), BURST=burst)
        self.found: list[Source] = []
        self.outbox, self.holdings = Outbox(), Holdings(settings.MAX_HELD)
        self.breakers = Breakers(settings)
        self.drained = False
        self.fetcher = Fetcher(
            lambda: self.found,
            settings,
            self.holdings,
            self.outbox,
            self.breakers,
            node_id=UUID(int=1),
            stopping=lambda: False,
            on_drained=self._end if settings.BURST else None,
        )

    def _end(self) -> None:
        self.drained = True

    def add(self, jobs: int, kind: type[Lane] = Lane) -> tuple[Consumer, Lane]:
        consumer = ConsumerFactory.create(type=Consumer.Type.PUSH, callback_url="http://a/")
        if jobs:
            published(consumer, jobs)
        lane = kind(self.fetcher.hear_of_room)
        handler = Handler(
            channel=consumer.channel.name, consumer=consumer.name, function=lambda job: None
        )
        puller = Puller(USING, consumer, via=Lease.Via.PUSH, node_id=UUID(int=1))
        self.found = [*self.found, Source(puller, handler, lane)]
        return consumer, lane


@pytest.fixture
def stand() -> Stand:
    return Stand()


def test_a_pass_ends_though_there_is_always_more(stand: Stand) -> None:
    """So consumers that are made meanwhile are seen, and registrations kept."""
    for _consumer in range(2):
        stand.add(2000)
    begun = time.monotonic()
    assert stand.fetcher.tick() == 0
    assert time.monotonic() - begun < LONGEST_PASS + SLACK
    assert Job.objects.filter(state="QUEUED").exists()
    _new, lane = stand.add(1)
    stand.fetcher.tick()
    assert len(lane.taken) == 1


def test_what_is_new_comes_before_backlogs_and_they_go_on(stand: Stand) -> None:
    lanes = [stand.add(300)[1] for _consumer in range(20)]
    consumer, quick = stand.add(0)
    stand.fetcher.tick()
    before = sum(len(lane.taken) for lane in lanes)
    published(consumer, 1)
    assert stand.fetcher.hear([consumer.pk])
    stand.fetcher.tick()
    assert len(quick.taken) == 1
    [(at, _job)] = quick.taken
    since = [taken for lane in lanes for taken, _job in lane.taken[:] if taken < at]
    assert len(since) - before <= 2
    assert sum(len(lane.taken) for lane in lanes) > before + 2


def test_a_claim_is_for_the_room_that_was_seen(stand: Stand) -> None:
    """By the time of it there may be less than none, of which a claim can make nothing."""
    _consumer, lane = stand.add(3, ShrinkingLane)
    stand.fetcher.tick()
    assert len(lane.taken) == 1


def test_what_is_new_is_looked_at_once(stand: Stand) -> None:
    """A second look would find nothing, and let wait what comes next."""
    consumer, lane = stand.add(0)
    while stand.fetcher.tick() == 0:
        pass
    for _time in range(URGENT_SHARE):
        before = lane.looks
        assert stand.fetcher.hear([consumer.pk])
        stand.fetcher.tick()
        assert lane.looks == before + 1


def test_lease_outlasts_the_longest_wait_by_the_handlers_time(stand: Stand) -> None:
    """So what begins has all of its time, and what has waited longer does not begin."""
    consumer, lane = stand.add(1)
    budget = timedelta(minutes=20)
    [source] = stand.found
    source.handler = replace(source.handler, timeout=budget)
    stand.fetcher.tick()
    lease = Lease.objects.get(consumer=consumer)
    assert lease.hard_end - lease.claimed_at == budget + LONGEST_WAIT
    [job] = lane.jobs
    assert not job.is_late_at(job.hard_end - (budget + LONGEST_WAIT).total_seconds())
    assert job.is_late_at(job.hard_end - budget.total_seconds())


def test_claim_under_way_when_the_circuit_opens_is_of_before_the_block(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None of its jobs is the probe: none closes the circuit again, none opens it further."""
    _consumer, lane = stand.add(3, WideLane)
    breaker, claim = stand.breakers.of(stand.found[0].handler), Puller.claim

    def claim_while_it_opens(puller: Puller, wanted: int) -> Claim:
        made = claim(puller, wanted)
        while not breaker.circuit.level:
            breaker.tell(breaker.circuit.ticket, Result.FAILURE)
        return made

    monkeypatch.setattr(Puller, "claim", claim_while_it_opens)
    stand.fetcher.tick()
    assert len(lane.jobs) == 3
    for job in lane.jobs:
        job.report_end(Result.SUCCESS)
    assert breaker.circuit.level == 1


def test_suspect_does_not_wait_for_what_was_claimed_with_it(stand: Stand) -> None:
    """That goes back at once, to run elsewhere or after it."""
    consumer, lane = stand.add(3, WideLane)
    first, *others = Job.objects.order_by("available_at", "id")
    Job.objects.filter(id=first.id).update(suspect=True)
    stand.fetcher.tick()
    assert not lane.taken
    released = [job for job, word in stand.outbox.said if word and word.event is Event.RELEASE]
    assert {job.id for job in released} == {job.id for job in others}
    stand.holdings.drop(released)
    stand.fetcher.tick()
    assert [job.id for job in lane.jobs] == [first.id]


def test_burst_ends_when_everybody_was_looked_at_in_vain(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many passes that takes."""
    monkeypatch.setattr(fetcher, "LONGEST_PASS", 0.005)
    stand = Stand(burst=True)
    lanes = [stand.add(jobs)[1] for jobs in (*[0] * 40, 1)]
    while not stand.drained:
        stand.fetcher.tick()
        stand.holdings.drop(lanes[-1].jobs)
    assert len(lanes[-1].taken) == 1
