"""Rates of claims: exact over all processes, whatever happens to the claims."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import transaction

from pulljobs import operating, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, UnreportedRun
from pulljobs.engine.sql import Params
from pulljobs.models import Consumer, FlowBucket, Job
from pulljobs.pulling import Claim, Puller
from pulljobs.states import State
from pulljobs.storage import jobs, limits, listen, statements
from pulljobs.storage.listen import Listener
from pulljobs.storage.rows import NotYet, Refusal, Taken
from pulljobs.storage.sessions import behind_pooler
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import Thread, at_once, blocked_by, pass_time, query, run, session, wait_until
from tests.storage.test_low_water_marks import work_on

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
MINUTE = timedelta(minutes=1)
LONG = timedelta(seconds=20)


def limited(rate: str = "60/h", burst: int | None = 3, **fields: object) -> Consumer:
    consumer: Consumer = ConsumerFactory.create(rate=rate, rate_burst=burst, **fields)
    return consumer


def held(claim: Claim) -> list[Held]:
    return (
        [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
        if claim.taken
        else []
    )


def fill(by: timedelta) -> None:
    """Move the buckets back in time, so that they gain the tokens of that time."""
    query("UPDATE pulljobs_flow_bucket SET filled_at = filled_at - %s", [by])


def set_rate(consumer: Consumer, rate: str, burst: int | None = None) -> None:
    consumer.rate, consumer.rate_burst = rate, burst
    consumer.save()


def tokens(consumer: Consumer) -> float:
    [level] = limits.read_buckets(USING, consumer)
    return level.tokens


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the growing list of the names of the statements that ran."""
    names: list[str] = []
    genuine = statements.AliasSession.run

    def noted(session: statements.AliasSession, name: str, params: Params) -> object:
        names.append(name)
        return genuine(session, name, params)

    monkeypatch.setattr(statements.AliasSession, "run", noted)
    return names


@pytest.fixture
def listener() -> Iterator[Listener]:
    if behind_pooler(USING):
        pytest.skip("LISTEN needs a connection of its own")
    with closing(Listener(USING)) as opened:
        yield opened


class TestBucket:
    def test_a_claim_takes_what_the_bucket_has_and_says_when_to_come_back(self) -> None:
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        first, second = puller.claim(10), puller.claim(10)
        assert (len(first.jobs), first.refusal, first.more) == (3, Refusal.RATE_LIMITED, False)
        assert (second.taken, second.refusal) == (None, Refusal.RATE_LIMITED)
        for claim in (first, second):
            assert claim.limited_for is not None
            assert MINUTE - LONG < claim.limited_for <= MINUTE

    def test_a_claim_of_fewer_jobs_than_tokens_is_not_limited(self) -> None:
        consumer = limited()
        published(consumer, 10)
        claim = Puller(USING, consumer).claim(2)
        assert (len(claim.jobs), claim.refusal, claim.limited_for) == (2, None, None)
        assert Puller(USING, consumer).claim(2).refusal is Refusal.RATE_LIMITED

    def test_a_claim_that_finds_fewer_jobs_spends_only_their_tokens(self) -> None:
        consumer = limited()
        published(consumer, 1)
        assert Puller(USING, consumer).claim(3).refusal is None
        assert 2 <= tokens(consumer) < 2.5

    def test_the_bucket_fills_at_the_rate_and_not_above_the_burst(self) -> None:
        consumer = limited()
        published(consumer, 20)
        puller = Puller(USING, consumer)
        assert len(puller.claim(20).jobs) == 3
        fill(2 * MINUTE)
        assert len(puller.claim(20).jobs) == 2
        fill(100 * MINUTE)
        assert len(puller.claim(20).jobs) == 3

    @pytest.mark.parametrize(("rate", "jobs"), [("5/s", 5), ("1/d", 1), ("150/m", 2)])
    def test_the_default_burst_is_the_rate_of_a_second_and_at_least_one_job(
        self, rate: str, jobs: int
    ) -> None:
        consumer = limited(rate, None)
        published(consumer, 10)
        assert len(Puller(USING, consumer).claim(10).jobs) == jobs

    @committed
    def test_a_claim_at_the_time_that_another_claim_named_gets_a_job(self) -> None:
        consumer = limited("10/s", 1)
        published(consumer, 6)
        puller = Puller(USING, consumer)
        assert len(puller.claim(2).jobs) == 1
        for _token in range(4):
            wait = puller.claim(2).limited_for
            assert wait is not None
            time.sleep(wait.total_seconds())
            assert len(puller.claim(2).jobs) == 1

    def test_a_clock_that_was_set_back_delays_no_token_by_more_than_the_rate_does(self) -> None:
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        puller.claim(10)
        fill(-60 * MINUTE)
        assert puller.claim(10).taken is None
        fill(MINUTE)
        assert len(puller.claim(10).jobs) == 1

    def test_a_bucket_is_of_one_consumer(self) -> None:
        first, second = limited(), limited()
        for consumer in (first, second):
            published(consumer, 5)
            assert len(Puller(USING, consumer).claim(5).jobs) == 3


class TestChanges:
    @committed
    def test_a_rate_that_is_set_later_holds_at_once_in_processes_that_did_not_know_it(self) -> None:
        consumer = ConsumerFactory.create()
        published(consumer, 20)
        puller = Puller(USING, consumer)
        assert len(puller.claim(2).jobs) == 2
        set_rate(Consumer.objects.get(), "60/h", 4)
        assert len(puller.claim(10).jobs) == 4
        assert puller.claim(10).refusal is Refusal.RATE_LIMITED
        set_rate(Consumer.objects.get(), "")
        assert len(puller.claim(10).jobs) == 10

    def test_a_lower_burst_cuts_the_tokens(self) -> None:
        consumer = limited(burst=10)
        published(consumer, 20)
        Puller(USING, consumer).claim(1)
        set_rate(consumer, "60/h", 2)
        assert len(Puller(USING, consumer).claim(20).jobs) == 2

    def test_a_higher_rate_counts_from_the_first_claim_that_meets_it(self) -> None:
        """Tokens come at the old rate until the first claim after the rate was raised."""
        consumer = limited("1/h", 1)
        published(consumer, 10)
        puller = Puller(USING, consumer)
        assert len(puller.claim(10).jobs) == 1
        set_rate(consumer, "60/m", 5)
        fill(timedelta(seconds=10))
        claim = puller.claim(10)
        assert claim.taken is None
        assert claim.limited_for is not None
        assert claim.limited_for <= timedelta(seconds=1)
        fill(timedelta(seconds=2))
        assert len(puller.claim(10).jobs) == 2

    def test_a_lower_rate_counts_for_all_the_time_since_the_last_claim(self) -> None:
        consumer = limited("60/m", 5)
        published(consumer, 20)
        puller = Puller(USING, consumer)
        assert len(puller.claim(20).jobs) == 5
        set_rate(consumer, "1/h", 5)
        fill(timedelta(seconds=10))
        assert puller.claim(20).taken is None

    def test_a_rate_that_is_set_again_begins_with_a_full_bucket(self) -> None:
        consumer = limited()
        published(consumer, 20)
        puller = Puller(USING, consumer)
        puller.claim(3)
        set_rate(consumer, "")
        assert not FlowBucket.objects.exists()
        set_rate(consumer, "60/h", 3)
        assert len(puller.claim(20).jobs) == 3

    def test_a_pause_that_is_saved_leaves_the_bucket_alone(self) -> None:
        consumer = ConsumerFactory.create()
        published(consumer, 5)
        stale = Consumer.objects.get()
        set_rate(consumer, "60/h", 3)
        Puller(USING, consumer).claim(3)
        operating.pause(stale, None)
        assert Puller(USING, consumer).claim(3).refusal is Refusal.RATE_LIMITED

    @committed
    def test_a_claim_waits_for_a_change_and_obeys_it(self) -> None:
        consumer = limited(burst=10)
        published(consumer, 20)
        with session() as other:
            other.execute("UPDATE pulljobs_consumer SET rate_burst = 2")
            claiming = Thread(lambda: Puller(USING, consumer).claim(20))
            wait_until(lambda: blocked_by(other))
            other.commit()
            assert len(claiming.result().jobs) == 2


class TestGivenBack:
    def test_a_released_job_gives_its_token_back(self) -> None:
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        first, second, third = held(puller.claim(3))
        pulling.finish([outcomes.release(first), outcomes.release(second, after=MINUTE)])
        assert len(puller.claim(10).jobs) == 2
        pulling.finish([outcomes.deliver(third)])
        assert puller.claim(10).refusal is Refusal.RATE_LIMITED

    @pytest.mark.parametrize(
        "settle",
        [
            outcomes.deliver,
            lambda job: outcomes.retry(job, "again", after=timedelta()),
            lambda job: outcomes.reject(job, "bad"),
        ],
        ids=["deliver", "retry", "reject"],
    )
    def test_a_job_that_ran_gives_no_token_back(self, settle: object) -> None:
        assert callable(settle)
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        pulling.finish([settle(job) for job in held(puller.claim(3))])
        assert puller.claim(10).taken is None

    def test_a_release_of_a_job_that_had_started_gives_no_token_back(self) -> None:
        """A started job's token stays spent if a stopping worker or an operator releases it."""
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        first, second, _third = held(puller.claim(3))
        begun = UnreportedRun(time.monotonic(), 0.1)
        pulling.finish([outcomes.release(first)._replace(run=begun)])
        operating.requeue([second.job_id])
        assert Job.objects.filter(state="INFLIGHT").count() == 1
        assert puller.claim(10).taken is None

    def test_an_expired_job_gives_no_token_back_because_it_may_have_run(self) -> None:
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        puller.claim(3)
        pass_time()
        assert jobs.reap(USING, 10)
        assert puller.claim(10).taken is None

    def test_jobs_of_a_dead_node_that_had_not_started_give_their_tokens_back(self) -> None:
        consumer, node = limited(), uuid4()
        published(consumer, 10)
        claim = Puller(USING, consumer, node_id=node).claim(3)
        started = frozenset([claim.jobs[0][0].id])
        assert jobs.abandon(USING, node, started)
        assert len(Puller(USING, consumer).claim(10).jobs) == 2

    def test_a_token_comes_back_once(self) -> None:
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        mine = held(puller.claim(3))
        for _repeat in range(2):
            pulling.finish([outcomes.release(job) for job in mine[:1]])
        assert len(puller.claim(10).jobs) == 1

    def test_a_release_of_a_lost_lease_gives_no_token_back(self) -> None:
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        [job, *_others] = held(puller.claim(3))
        pulling.finish([outcomes.release(Held(job.job_id, uuid4()))])
        assert puller.claim(10).taken is None

    def test_tokens_that_come_back_do_not_count_above_the_burst(self) -> None:
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        mine = held(puller.claim(3))
        fill(60 * MINUTE)
        pulling.finish([outcomes.release(job) for job in mine])
        assert len(puller.claim(10).jobs) == 3

    def test_a_job_that_was_claimed_before_the_rate_was_set_gives_no_token_back(self) -> None:
        consumer = ConsumerFactory.create()
        published(consumer, 20)
        early = held(Puller(USING, consumer).claim(5))
        set_rate(consumer, "60/h", 3)
        puller = Puller(USING, consumer)
        assert len(puller.claim(20).jobs) == 3
        pulling.finish([outcomes.release(job) for job in early])
        assert puller.claim(20).taken is None

    def test_a_release_that_is_rolled_back_gives_no_token_back(self) -> None:
        consumer = limited()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        mine = held(puller.claim(3))
        with transaction.atomic(using=USING):
            pulling.finish([outcomes.release(job) for job in mine])
            transaction.set_rollback(True, using=USING)
        assert puller.claim(10).taken is None

    def test_a_claim_that_is_rolled_back_spends_nothing(self) -> None:
        consumer = limited()
        published(consumer, 10)
        with transaction.atomic(using=USING):
            assert len(Puller(USING, consumer).claim(3).jobs) == 3
            transaction.set_rollback(True, using=USING)
        assert len(Puller(USING, consumer).claim(3).jobs) == 3

    @committed
    def test_a_release_waits_for_a_claim_and_loses_no_token(self) -> None:
        consumer = limited(burst=10)
        published(consumer, 10)
        mine = held(Puller(USING, consumer).claim(3))
        with session() as other:
            run(other, "lock_consumer", {"consumer_id": consumer.pk})
            run(other, "allowance", {"consumer_id": consumer.pk, "group_id": None})
            releasing = Thread(lambda: pulling.finish([outcomes.release(job) for job in mine]))
            wait_until(lambda: blocked_by(other))
            other.execute("UPDATE pulljobs_flow_bucket SET tokens = 0.25")
            other.commit()
            releasing.result()
        assert 3.25 <= tokens(consumer) < 3.75

    @committed
    def test_a_release_wakes_the_waiters(self, listener: Listener) -> None:
        consumer = limited()
        published(consumer, 3)
        listen.wait(USING, [consumer.pk], uuid4(), MINUTE)
        pulling.finish([outcomes.release(job) for job in held(Puller(USING, consumer).claim(3))])
        assert listener.receive(LONG) == {consumer.pk}


class TestTogether:
    def test_the_limit_of_jobs_in_flight_comes_first_where_both_are_used_up(self) -> None:
        consumer = limited(max_in_flight=3)
        published(consumer, 10)
        puller = Puller(USING, consumer)
        mine = held(puller.claim(10))
        assert len(mine) == 3
        assert puller.claim(10).refusal is Refusal.MAX_IN_FLIGHT
        pulling.finish([outcomes.deliver(job) for job in mine])
        assert puller.claim(10).refusal is Refusal.RATE_LIMITED

    def test_a_rate_goes_together_with_exclusive_keys(self) -> None:
        consumer = limited(exclusive_keys=True)
        for key in ("a", "a", "b", "c", "d", "e"):
            published(consumer, key=key)
        claim = Puller(USING, consumer).claim(10)
        assert (len(claim.jobs), claim.refusal) == (3, Refusal.RATE_LIMITED)
        assert len({message.key for _job, message in claim.jobs}) == 3

    def test_a_claim_that_is_tried_again_for_its_size_spends_once(self) -> None:
        consumer = limited()
        published(consumer, 10, payload=b"x" * 400)
        claim = Puller(USING, consumer).claim(3, max_bytes=1_000)
        assert (len(claim.jobs), claim.refusal) == (2, Refusal.MAX_BYTES)
        assert 1 <= tokens(consumer) < 1.5

    def test_a_repeated_request_spends_nothing(self) -> None:
        consumer = limited()
        published(consumer, 10)
        for _repeat in range(3):
            assert len(Puller(USING, consumer).claim(2, request_id="r").jobs) == 2
        assert 1 <= tokens(consumer) < 1.5

    def test_a_paused_consumer_is_not_limited(self) -> None:
        consumer = limited()
        published(consumer, 10)
        Puller(USING, consumer).claim(3)
        operating.pause(consumer, consumer.created_at + timedelta(days=1))
        assert Puller(USING, consumer).claim(3).refusal is Refusal.PAUSED

    def test_a_job_is_taken_by_its_id_only_with_a_token(self) -> None:
        consumer = limited(burst=1)
        first, second = published(consumer, 2)
        assert isinstance(pulling.take(consumer, first, State.QUEUED), Taken)
        refused = pulling.take(consumer, second, State.QUEUED)
        assert isinstance(refused, NotYet)
        assert MINUTE - LONG < refused.next_due <= MINUTE
        assert Job.objects.get(id=second).deliveries == 0
        fill(MINUTE)
        assert isinstance(pulling.take(consumer, second, State.QUEUED), Taken)

    def test_a_job_that_could_not_be_taken_costs_no_token(self) -> None:
        consumer = limited(burst=1)
        [job_id] = published(consumer)
        assert pulling.take(consumer, job_id, State.DEAD) is None
        assert isinstance(pulling.take(consumer, job_id, State.QUEUED), Taken)

    def test_takes_alone_learn_of_a_higher_rate(self) -> None:
        consumer = limited("1/d", 1)
        first, second = published(consumer, 2)
        assert isinstance(pulling.take(consumer, first, State.QUEUED), Taken)
        set_rate(consumer, "60/m", 1)
        assert isinstance(pulling.take(consumer, second, State.QUEUED), NotYet)
        fill(timedelta(seconds=1))
        assert isinstance(pulling.take(consumer, second, State.QUEUED), Taken)


class TestProcesses:
    @committed
    def test_many_claimers_never_take_more_than_the_rate_and_use_nearly_all_of_it(self) -> None:
        consumer = limited("100/s", 10)
        published(consumer, 1_000)
        begun, seconds = time.monotonic(), 2.0

        def claim(_number: int) -> int:
            puller, count = Puller(USING, consumer), 0
            while time.monotonic() < begun + seconds:
                result = puller.claim(4)
                count += len(result.jobs)
                if result.limited_for is not None:
                    time.sleep(result.limited_for.total_seconds())
            return count

        count = sum(at_once(6, claim))
        allowed = 10 + 100 * (time.monotonic() - begun)
        assert 0.7 * 100 * seconds < count <= allowed

    @committed
    def test_a_consumer_without_a_rate_runs_one_statement_a_claim(self, ran: list[str]) -> None:
        puller = Puller(USING, ConsumerFactory.create())
        work_on(puller)
        published(puller.consumer, 2)
        del ran[:]
        assert len(puller.claim(1).jobs) == 1
        assert ran == ["claim_level"]

    @committed
    def test_a_limited_claim_runs_four_statements_and_three_without_a_token(
        self, ran: list[str]
    ) -> None:
        consumer = limited()
        published(consumer, 5)
        puller = Puller(USING, consumer)
        puller.claim(1)
        del ran[:]
        puller.claim(1)
        assert ran == ["lock_consumer", "allowance", "claim", "spend"]
        puller.claim(1)
        del ran[:]
        assert puller.claim(1).taken is None
        assert ran == ["lock_consumer", "allowance", "claim"]
