"""Passes of the fetcher over consumers whose pools have room again as soon as they are full."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import OperationalError

from pulljobs.engine.circuit import Result
from pulljobs.engine.run_times import RunTime
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Consumer, Job, Lease
from pulljobs.pulling import LIMITED_POLL, Claim, Puller
from pulljobs.states import Event
from pulljobs.worker import fetcher, rotation
from pulljobs.worker.circuits import Circuits
from pulljobs.worker.fetcher import NEVER, Fetcher
from pulljobs.worker.in_flight import InFlightJobs
from pulljobs.worker.job_pool import LONGEST_WAIT
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.rotation import LONGEST_PASS, URGENT_SHARE
from pulljobs.worker.subscriptions import ConsumerSubscription
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import SLACK
from tests.worker.claiming import limits, unclaimed

pytestmark = pytest.mark.django_db(transaction=True)


class QuickPool:
    """Job pool that takes one job at a time and has done it at once."""

    reports_room = True

    def __init__(self, on_room: Callable[["QuickPool"], None]) -> None:
        self._on_room = on_room
        self.taken: list[tuple[float, int]] = []
        self.jobs: list[ClaimedJob] = []
        self.looks = 0
        """Number of times that the fetcher asked this pool how many jobs it can take."""

    def room(self, run_time: RunTime) -> int:
        self.looks += 1
        return 1

    def take(self, jobs: Sequence[ClaimedJob]) -> None:
        self.taken += [(time.monotonic(), job.id) for job in jobs]
        self.jobs += jobs
        self._on_room(self)


class WidePool(QuickPool):
    def room(self, run_time: RunTime) -> int:
        return 10


class ShrinkingPool(QuickPool):
    """Job pool whose handlers turn out to be slower than before."""

    def __init__(self, on_room: Callable[[QuickPool], None]) -> None:
        super().__init__(on_room)
        self.rooms = [1, -1]

    def room(self, run_time: RunTime) -> int:
        return self.rooms.pop(0) if self.rooms else 0


class FetcherBench:
    """Fetcher with push consumers, which a test may add between passes."""

    def __init__(self, *, burst: bool = False, **changed: Any) -> None:
        self.limits = settings = limits(
            MAX_HELD=100_000, MAX_FETCH_INTERVAL=timedelta(seconds=60), BURST=burst, **changed
        )
        self.subscriptions: list[ConsumerSubscription] = []
        self.buffer = ResultBuffer()
        self.in_flight = InFlightJobs(settings.MAX_HELD, settings.MAX_HELD_BYTES)
        self.circuits = Circuits(settings)
        self.drained = False
        self.fetcher = Fetcher(
            lambda: self.subscriptions,
            settings,
            self.in_flight,
            self.buffer,
            self.circuits,
            node_id=UUID(int=1),
            stopping=lambda: False,
            on_drained=self._end if settings.BURST else None,
        )

    def _end(self) -> None:
        self.drained = True

    def add(self, jobs: int, kind: type[QuickPool] = QuickPool) -> tuple[Consumer, QuickPool]:
        consumer = ConsumerFactory.create(type=Consumer.Type.PUSH, callback_url="http://a/")
        if jobs:
            published(consumer, jobs)
        pool = kind(self.fetcher.rotation.note_room)
        handler = Handler(
            channel=consumer.channel.name, consumer=consumer.name, function=lambda job: None
        )
        puller = Puller(USING, consumer, via=Lease.Via.PUSH, node_id=UUID(int=1))
        self.subscriptions = [*self.subscriptions, ConsumerSubscription(puller, handler, pool)]
        return consumer, pool


@pytest.fixture
def bench() -> FetcherBench:
    return FetcherBench()


def test_a_pass_ends_although_there_is_always_more_to_claim(bench: FetcherBench) -> None:
    """A pass ends although there is always more to claim, so that new consumers are served."""
    for _consumer in range(2):
        bench.add(2000)
    begun = time.monotonic()
    assert bench.fetcher.tick() == 0
    assert time.monotonic() - begun < LONGEST_PASS + SLACK
    assert Job.objects.filter(state="QUEUED").exists()
    _new, pool = bench.add(1)
    bench.fetcher.tick()
    assert len(pool.taken) == 1


def test_new_work_comes_before_backlogs_and_backlogs_go_on(bench: FetcherBench) -> None:
    pools = [bench.add(300)[1] for _consumer in range(20)]
    consumer, quick = bench.add(0)
    bench.fetcher.tick()
    before = sum(len(pool.taken) for pool in pools)
    published(consumer, 1)
    assert bench.fetcher.rotation.note_work([consumer.pk])
    bench.fetcher.tick()
    assert len(quick.taken) == 1
    [(at, _job)] = quick.taken
    since = [taken for pool in pools for taken, _job in pool.taken[:] if taken < at]
    assert len(since) - before <= 2
    assert sum(len(pool.taken) for pool in pools) > before + 2


def test_a_claim_asks_the_pool_once_for_its_free_slots(bench: FetcherBench) -> None:
    """A pass asks a pool once how many jobs it can take: a second answer may be below zero."""
    _consumer, pool = bench.add(3, ShrinkingPool)
    bench.fetcher.tick()
    assert len(pool.taken) == 1


def test_a_consumer_with_new_work_is_looked_at_once(bench: FetcherBench) -> None:
    """A pass claims once for a consumer with new work: a second claim would delay the others."""
    consumer, pool = bench.add(0)
    while bench.fetcher.tick() == 0:
        pass
    for _time in range(URGENT_SHARE):
        before = pool.looks
        assert bench.fetcher.rotation.note_work([consumer.pk])
        bench.fetcher.tick()
        assert pool.looks == before + 1


def test_a_lease_outlasts_the_longest_wait_by_the_time_limit(bench: FetcherBench) -> None:
    """A job that starts has its full time limit. A job that waited too long does not start."""
    consumer, pool = bench.add(1)
    time_limit = timedelta(minutes=20)
    [subscription] = bench.subscriptions
    subscription.handler = replace(subscription.handler, timeout=time_limit)
    bench.fetcher.tick()
    lease = Lease.objects.get(consumer=consumer)
    assert lease.hard_end - lease.claimed_at == time_limit + LONGEST_WAIT
    [job] = pool.jobs
    assert not job.is_late_at(job.hard_end - (time_limit + LONGEST_WAIT).total_seconds())
    assert job.is_late_at(job.hard_end - time_limit.total_seconds())


def test_results_of_a_claim_that_began_before_the_circuit_opened_change_nothing(
    bench: FetcherBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jobs of a claim that began before the circuit opened do not change it."""
    _consumer, pool = bench.add(3, WidePool)
    consumer_circuit, claim = bench.circuits.get(bench.subscriptions[0].handler), Puller.claim

    def claim_while_it_opens(puller: Puller, wanted: int, **options: Any) -> Claim:
        result = claim(puller, wanted, **options)
        for number in range(bench.limits.BACKOFF_AFTER):
            ticket = consumer_circuit.ticket
            consumer_circuit.note_result(ticket, unclaimed(number), Result.FAILURE)
        return result

    monkeypatch.setattr(Puller, "claim", claim_while_it_opens)
    bench.fetcher.tick()
    assert len(pool.jobs) == 3
    for job in pool.jobs:
        job.report_end(Result.SUCCESS)
    assert consumer_circuit.level == 1


def test_claims_stop_at_the_limit_of_payload_bytes_and_go_on_below_it() -> None:
    """Claims stop while the payloads in memory reach the limit, and go on when some jobs end."""
    bench = FetcherBench(MAX_HELD_BYTES=100)
    _consumer, pool = bench.add(40, WidePool)
    while bench.fetcher.tick() == 0:
        pass
    assert len(pool.jobs) == 100 // len(b"payload")
    bench.in_flight.drop(pool.jobs[:3])
    bench.fetcher.rotation.look_at_all()
    bench.fetcher.tick()
    assert len(pool.jobs) == 100 // len(b"payload") + 3


def test_a_pass_leaves_out_consumers_that_are_due_later(bench: FetcherBench) -> None:
    """A consumer that is due later gets no claim before that, unless a notification names it."""
    consumer, pool = bench.add(0, WidePool)
    bench.add(0, WidePool)
    while bench.fetcher.tick() == 0:
        pass
    in_turn = bench.fetcher.rotation
    assert not in_turn.soon(in_turn.search_at)
    published(consumer, 1)
    in_turn.note_work([consumer.pk])
    bench.fetcher.tick()
    assert len(pool.taken) == 1


def test_one_statement_finds_the_consumers_with_jobs_if_many_are_due(
    bench: FetcherBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If many consumers are due, one statement finds those with jobs, and only they get a claim."""
    monkeypatch.setattr(fetcher, "MANY_DUE", 2)
    pools = [bench.add(jobs, WidePool)[1] for jobs in (0, 0, 1, 0)]
    while bench.fetcher.tick() == 0:
        pass
    assert [len(pool.taken) for pool in pools] == [0, 0, 1, 0]
    assert claimed_for(bench) == [False, False, True, False]
    assert all(each.look_at > time.monotonic() for each in bench.subscriptions)


def claimed_for(bench: FetcherBench) -> list[bool]:
    """Return for each consumer True if the fetcher has claimed for it."""
    return [each.puller._raw is not None for each in bench.subscriptions]


def test_consumers_without_jobs_are_polled_together(
    bench: FetcherBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One statement polls the consumers that are due. Only those that have jobs get a claim."""
    monkeypatch.setattr(fetcher, "FEW_POLLS", 1)
    pools = [bench.add(jobs, WidePool)[1] for jobs in (0, 0, 0, 1)]
    while bench.fetcher.tick() == 0:
        pass
    assert [len(pool.taken) for pool in pools] == [0, 0, 0, 1]
    assert claimed_for(bench) == [False, False, False, True]
    Job.objects.all().delete()  # Else the statement would find the job of the last consumer.
    bench.fetcher._look_again_at = NEVER
    bench.fetcher.rotation.search_at = 0.0
    soon = time.monotonic() + rotation.SEARCH_EVERY / 2
    for subscription in bench.subscriptions:
        subscription.look_at = soon
    bench.fetcher.tick()
    put_off = [each.look_at > soon for each in bench.subscriptions]
    assert put_off == [True, True, True, False], "the low-water mark of the last one is known"


def test_the_fetcher_wakes_for_the_search_of_consumers_that_are_due_later(
    bench: FetcherBench,
) -> None:
    bench.add(0, WidePool)
    while bench.fetcher.tick() == 0:
        pass
    bench.fetcher._look_again_at = NEVER
    assert bench.fetcher.tick() <= rotation.SEARCH_EVERY


def test_a_suspect_does_not_wait_for_jobs_of_the_same_claim(bench: FetcherBench) -> None:
    """The other jobs of a suspect's claim are released at once, so that it can run alone."""
    consumer, pool = bench.add(3, WidePool)
    first, *others = Job.objects.order_by("available_at", "id")
    Job.objects.filter(id=first.id).update(suspect=True)
    bench.fetcher.tick()
    assert not pool.taken
    released = [
        job for job, outcome in bench.buffer.results if outcome and outcome.event is Event.RELEASE
    ]
    assert {job.id for job in released} == {job.id for job in others}
    bench.in_flight.drop(released)
    bench.fetcher.tick()
    assert [job.id for job in pool.jobs] == [first.id]


def test_a_burst_ends_when_no_consumer_has_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--burst`, the fetcher ends only after it has claimed the jobs of all consumers."""
    monkeypatch.setattr(rotation, "LONGEST_PASS", 0.005)
    bench = FetcherBench(burst=True)
    pools = [bench.add(jobs)[1] for jobs in (*[0] * 40, 1)]
    while not bench.drained:
        bench.fetcher.tick()
        bench.in_flight.drop(pools[-1].jobs)
    assert len(pools[-1].taken) == 1


def limited(bench: FetcherBench, rate: str) -> tuple[ConsumerSubscription, QuickPool]:
    """Add a consumer with this rate and a burst of one job, and claim until the rate refuses."""
    consumer, pool = bench.add(5, WidePool)
    consumer.rate, consumer.rate_burst = rate, 1
    consumer.save()
    while bench.fetcher.tick() == 0:
        pass
    [subscription] = bench.subscriptions
    return subscription, pool


def test_a_limited_consumer_is_claimed_for_again_at_the_next_token(bench: FetcherBench) -> None:
    subscription, pool = limited(bench, "1/s")
    assert len(pool.taken) == 1
    assert subscription.look_at == subscription.limited_until
    while len(pool.taken) < 2:
        time.sleep(min(bench.fetcher.tick(), 0.05))
    [(first, _job), (second, _other)] = pool.taken
    assert 0.8 < second - first < 1.1 + SLACK


def test_a_limited_consumer_is_looked_at_now_and_then_before_a_distant_token(
    bench: FetcherBench,
) -> None:
    """A consumer out of tokens is polled now and then, because its rate may be raised meanwhile."""
    subscription, pool = limited(bench, "1/h")
    wait, longest = subscription.look_at - time.monotonic(), LIMITED_POLL.total_seconds()
    assert longest / 2 < wait <= longest
    assert len(pool.taken) == 1


def test_notifications_of_a_limited_consumer_wait_and_room_in_its_pool_does_not_count(
    bench: FetcherBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    subscription, pool = limited(bench, "1/h")
    bench.fetcher._look_again_at = NEVER
    monkeypatch.setattr(Puller, "claim", None)
    look_at = subscription.look_at
    bench.fetcher.rotation.note_room(pool)
    bench.fetcher.tick()
    assert subscription.look_at == look_at
    subscription.quiet_until = time.monotonic() + 2
    assert bench.fetcher.rotation.note_work([subscription.puller.consumer.pk])
    bench.fetcher.tick()
    assert subscription.look_at == subscription.quiet_until


def test_jobs_of_a_claim_whose_answer_was_lost_are_claimed_again_uncharged(
    bench: FetcherBench,
) -> None:
    """A repeated claim gets the jobs, which would otherwise wait for the end of their lease."""
    _consumer, pool = bench.add(3, WidePool)
    claim = Puller.claim

    def lose_answer(puller: Puller, *args: Any, **options: Any) -> Claim:
        claim(puller, *args, **options)
        raise OperationalError("the connection is lost")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Puller, "claim", lose_answer)
        with pytest.raises(OperationalError):
            bench.fetcher.tick()
    assert set(Job.objects.values_list("state", flat=True)) == {"INFLIGHT"}
    bench.fetcher.rotation.look_at_all()
    bench.fetcher.tick()
    assert len(pool.taken) == 3
    assert set(Job.objects.values_list("retry_count", "deliveries")) == {(0, 1)}
