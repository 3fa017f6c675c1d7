"""Exclusive keys: one job of a key at a time, in order, and jobs of other keys do not wait."""

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import transaction

from pulljobs import operating, pulling
from pulljobs.engine import low_water_marks, outcomes
from pulljobs.engine.claiming import keyed
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import Consumer, ExclusiveKey, Lease
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from pulljobs.storage import listen
from pulljobs.storage.listen import Listener
from pulljobs.storage.rows import Refusal
from pulljobs.storage.sessions import behind_pooler
from tests.factories import USING, ConsumerFactory, published
from tests.keyed import blocked, claim, deliver, exclusive, ids, lock_key, queued, stuck
from tests.sessions import (
    Thread,
    blocked_by,
    lock_timeout,
    pass_time,
    query,
    run,
    session,
    wait_until,
)

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
SOON = timedelta(milliseconds=50)
LATER = timedelta(hours=1)


@pytest.fixture(autouse=True)
def nothing_is_stuck(db: None) -> Iterator[None]:
    """Assert after each test that no blocked job has a free key, and let waits for locks fail."""
    with lock_timeout():
        yield
    assert stuck() == []


class TestClaim:
    def test_one_job_of_a_key_in_a_batch(self) -> None:
        """A claim over keys a, a, b, c takes the first a, b and c."""
        consumer = exclusive()
        first, second, b, c = queued(consumer, "aabc")
        assert ids(claim(consumer)) == [first, b, c]
        assert blocked() == {second}

    def test_the_next_of_a_key_comes_after_the_one_before_it(self) -> None:
        consumer = exclusive()
        made, order = queued(consumer, "aaaa"), []
        while held := claim(consumer):
            assert claim(consumer) == []
            order += ids(held)
            deliver(*held)
        assert order == made

    def test_what_is_published_while_its_key_is_busy_waits(self) -> None:
        consumer = exclusive()
        queued(consumer, "a")
        held = claim(consumer)
        [second] = queued(consumer, "a")
        assert claim(consumer) == []
        assert blocked() == {second}
        deliver(*held)
        assert ids(claim(consumer)) == [second]

    def test_free_keys_do_not_wait_behind_a_busy_one(self) -> None:
        consumer = exclusive()
        busy, *rest = queued(consumer, "a" * 20 + "bcd")
        assert ids(claim(consumer, 1)) == [busy]
        assert ids(claim(consumer, 5)) == rest[-3:]

    def test_keys_are_each_consumers_own(self) -> None:
        first = exclusive()
        other = exclusive(channel=first.channel)
        publish(first.channel.name, b"x", key="a")
        assert claim(first)
        assert claim(other)

    def test_jobs_without_a_key_run_side_by_side(self) -> None:
        consumer = exclusive()
        made = published(consumer, 3)
        [keyed] = queued(consumer, "a")
        assert ids(claim(consumer)) == [*made, keyed]

    def test_no_more_than_wanted_and_the_others_stay_as_they_were(self) -> None:
        consumer = exclusive()
        made = queued(consumer, "abcd")
        assert ids(claim(consumer, 2)) == made[:2]
        assert blocked() == set()
        assert ids(claim(consumer, 2)) == made[2:]

    def test_a_higher_priority_brings_its_key_forward_but_not_itself_before_the_first(self) -> None:
        consumer = exclusive()
        [first] = queued(consumer, "a")
        [other] = queued(consumer, "b")
        queued(consumer, "a", priority=9)
        assert ids(claim(consumer, 1)) == [first]
        assert ids(claim(consumer, 1)) == [other]

    def test_what_is_due_later_does_not_hold_its_key(self) -> None:
        consumer = exclusive()
        [later] = queued(consumer, "a", delay=LATER)
        [now] = queued(consumer, "a")
        held = claim(consumer)
        assert ids(held) == [now]
        deliver(*held)
        query("UPDATE pulljobs_job SET available_at = clock_timestamp()")
        assert ids(claim(consumer)) == [later]

    @committed
    def test_a_key_that_another_claim_has_locked_is_passed_without_waiting(self) -> None:
        consumer = exclusive()
        _a, b = queued(consumer, "ab")
        with session() as other:
            lock_key(other, consumer, "a")
            claimed = Puller(USING, consumer).claim(10)
            assert [job.id for job, _message in claimed.jobs] == [b]
            assert claimed.next_due is not None
            assert claimed.next_due < timedelta(seconds=1)
        assert len(claim(consumer)) == 1

    @committed
    @pytest.mark.parametrize("what", ["jobs", "keys"])
    @pytest.mark.parametrize("seen", [4, 500], ids=["as many as it sees", "fewer"])
    def test_free_keys_do_not_wait_behind_those_that_others_have_locked(
        self, what: str, seen: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Claims skip keys or jobs that another transaction has locked, and take them later."""
        monkeypatch.setattr(keyed, "LEAST_SEEN", seen)
        monkeypatch.setattr(low_water_marks, "PATIENCE", timedelta())
        monkeypatch.setattr(low_water_marks, "CLAIM_SPACING", timedelta())
        consumer = exclusive()
        made = queued(consumer, "abcdefg")
        puller = Puller(USING, consumer)

        def claimed() -> list[int]:
            return [job.id for job, _message in puller.claim(2).jobs]

        with session() as other:
            for job, key in zip(made[:4], "abcd", strict=True):
                if what == "keys":
                    lock_key(other, consumer, key)
                else:
                    run(other, "lock_queued", {"job_ids": [job]})
            assert claimed() == made[4:6]
            assert claimed() == made[6:]
            assert claimed() == []
        assert claimed() == made[:2]
        assert claimed() == made[2:4]

    @committed
    def test_one_puller_finds_what_it_had_to_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process finds a job that it skipped while its key was locked, however long that was."""
        monkeypatch.setattr(low_water_marks, "PATIENCE", timedelta())
        monkeypatch.setattr(low_water_marks, "CLAIM_SPACING", timedelta())
        consumer = exclusive()
        first, passed = queued(consumer, "ya")
        puller = Puller(USING, consumer)
        assert [job.id for job, _message in puller.claim(1).jobs] == [first]
        with session() as other:
            lock_key(other, consumer, "a")
            for key in "bcd":
                assert len(queued(consumer, key)) == len(puller.claim(10).jobs)
        assert [job.id for job, _message in puller.claim(10).jobs] == [passed]

    @committed
    def test_a_publisher_with_an_open_transaction_stops_no_claim(self) -> None:
        consumer = exclusive()
        first, second = queued(consumer, "aa")
        publishing, done = Thread(lambda: publish_and_wait(consumer, "ab")), []
        try:
            wait_until(lambda: OPEN == [True])
            for _round in range(2):
                held = claim(consumer)
                done += ids(held)
                deliver(*held)
            assert claim(consumer) == []
        finally:
            OPEN.clear()
        a, b = publishing.result()
        assert done == [first, second]
        assert ids(claim(consumer)) == [a, b]

    @committed
    def test_first_in_first_out_counts_by_id_among_committed_jobs(self) -> None:
        consumer = exclusive()
        publishing = Thread(lambda: publish_and_wait(consumer, "a"))
        try:
            wait_until(lambda: OPEN == [True])
            [second, third] = queued(consumer, "aa")
            [running] = claim(consumer)
        finally:
            OPEN.clear()
        [first] = publishing.result()
        assert running.job_id == second
        deliver(running)
        for expected in (first, third):
            held = claim(consumer)
            assert ids(held) == [expected]
            deliver(*held)

    @committed
    def test_a_rollback_of_a_claim_leaves_everything_as_it_was(self) -> None:
        consumer = exclusive()
        first, *_rest = queued(consumer, "aa")
        with transaction.atomic(USING):
            assert ids(claim(consumer)) == [first]
            transaction.set_rollback(True, using=USING)
        assert ids(claim(consumer)) == [first]

    def test_a_repeat_of_a_request_gets_the_same_jobs(self) -> None:
        consumer = exclusive()
        queued(consumer, "aab")
        held = claim(consumer, request_id="r")
        assert claim(consumer, request_id="r") == held

    def test_bounds_go_together_with_keys(self) -> None:
        consumer = exclusive(max_in_flight=2)
        first, _second, b, _c = queued(consumer, "aabc")
        held = claim(consumer)
        assert ids(held) == [first, b]
        full = Puller(USING, consumer).claim(5)
        assert full.refusal is Refusal.MAX_IN_FLIGHT
        assert full.next_due is None, "who makes room wakes"
        deliver(held[0])
        assert len(claim(consumer)) == 1

    def test_keys_become_exclusive_for_a_puller_that_is_at_work(self) -> None:
        consumer = ConsumerFactory.create()
        puller = Puller(USING, consumer)
        published(consumer)
        assert puller.claim(1).jobs
        Consumer.objects.update(exclusive_keys=True)
        first, _second = queued(consumer, "aa")
        assert [job.id for job, _message in puller.claim(5).jobs] == [first]
        assert puller.claim(5).jobs == []

    def test_jobs_of_a_push_consumer_are_claimed_by_push_deliveries_only(self) -> None:
        """Once a consumer is of type push, only push deliveries claim its jobs."""
        consumer = exclusive()
        puller = Puller(USING, consumer)
        [job] = queued(consumer, "a")
        Consumer.objects.update(type=Consumer.Type.PUSH)
        closed = puller.claim(5)
        assert closed.jobs == []
        assert closed.next_due is None
        [(held, _message)] = Puller(USING, consumer, via=Lease.Via.PUSH).claim(5).jobs
        assert held.id == job

    def test_keys_that_are_exclusive_no_more_let_all_go(self) -> None:
        consumer = exclusive()
        _first, *rest = queued(consumer, "aaaa")
        claim(consumer)
        assert blocked() == set(rest)
        Consumer.objects.update(exclusive_keys=False)
        pulling.sweep_keys()
        assert ids(claim(consumer)) == rest


def publish_and_wait(consumer: Consumer, keys: str) -> list[int]:
    with transaction.atomic(USING):
        made = queued(consumer, keys)
        OPEN.append(True)
        wait_until(lambda: not OPEN)
    return made


OPEN: list[bool] = []
"""List that is not empty while the transaction of `publish_and_wait` stays open."""


def kill(held: Held) -> None:
    assert operating.kill([held.job_id], by="test").done


def say(settlement: Callable[[Held], Settlement]) -> Callable[[Held], None]:
    def settle(held: Held) -> None:
        assert pulling.finish([settlement(held)]).states

    return settle


def expire(_held: Held) -> None:
    pass_time()
    assert pulling.reap()


FREEING = {
    "deliver": say(outcomes.deliver),
    "reject": say(lambda held: outcomes.reject(held, "bad")),
    "retry, used up": say(lambda held: outcomes.retry(held, "bad")),
    "expire, used up": expire,
    "kill": kill,
}
HOLDING = {
    "retry": say(lambda held: outcomes.retry(held, "bad", after=timedelta())),
    "release": say(outcomes.release),
    "expire": expire,
}


def test_blocked_jobs_are_counted_apart() -> None:
    consumer = exclusive()
    queued(consumer, "aaab")
    claim(consumer, 1)
    claim(consumer, 1)
    stats = operating.stats(consumer)
    assert (stats.ready, stats.in_flight, stats.blocked) == (0, 2, 2)


class TestFreeing:
    @pytest.mark.parametrize("event", FREEING)
    def test_the_next_of_the_key_may_be_claimed(self, event: str) -> None:
        """A job that ends, delivered or DEAD, frees its key for the next job."""
        consumer = exclusive(max_retries=0)
        _first, second, _third = queued(consumer, "aaa")
        [held] = claim(consumer)
        FREEING[event](held)
        assert ids(claim(consumer)) == [second]

    @pytest.mark.parametrize("event", HOLDING)
    @pytest.mark.parametrize("hold", [True, False])
    def test_the_same_job_comes_again(self, event: str, hold: bool) -> None:
        """A job that is queued again at once keeps its key, so that it precedes later jobs."""
        consumer = exclusive(hold_key_on_retry=hold)
        first, *_rest = queued(consumer, "aaa")
        [held] = claim(consumer)
        HOLDING[event](held)
        assert ids(claim(consumer)) == [first]
        assert claim(consumer) == []

    def test_a_retry_to_come_holds_its_key(self) -> None:
        """With `hold_key_on_retry`, later jobs of the key wait for the retry."""
        consumer = exclusive()
        first, *_rest = queued(consumer, "aab")
        held = claim(consumer)
        pulling.finish([outcomes.retry(held[0], "later", after=LATER), outcomes.deliver(held[1])])
        assert claim(consumer) == []
        query("UPDATE pulljobs_job SET available_at = clock_timestamp() WHERE id = %s", [first])
        assert ids(claim(consumer)) == [first]

    def test_a_retry_to_come_lets_others_pass_where_it_does_not_hold_its_key(self) -> None:
        """Without `hold_key_on_retry`, later jobs are claimed until the retry is due."""
        consumer = exclusive(hold_key_on_retry=False)
        first, second, third = queued(consumer, "aaa")
        pulling.finish([outcomes.retry(claim(consumer)[0], "later", after=LATER)])
        held = claim(consumer)
        assert ids(held) == [second]
        query("UPDATE pulljobs_job SET available_at = clock_timestamp() WHERE id = %s", [first])
        assert claim(consumer) == []
        deliver(*held)
        held = claim(consumer)
        assert ids(held) == [first]
        deliver(*held)
        assert ids(claim(consumer)) == [third]

    @pytest.mark.parametrize("hold", [True, False])
    def test_a_release_with_a_delay_keeps_its_key_as_a_retry_does(self, hold: bool) -> None:
        """Later jobs of the key wait for a snoozed job only with `hold_key_on_retry`."""
        consumer = exclusive(hold_key_on_retry=hold)
        _first, second = queued(consumer, "aa")
        pulling.finish([outcomes.release(claim(consumer)[0], after=LATER, started=True)])
        assert ids(claim(consumer)) == ([] if hold else [second])

    @pytest.mark.parametrize("after", [None, LATER])
    def test_a_job_that_is_released_without_a_run_keeps_its_key(
        self, after: timedelta | None
    ) -> None:
        """A job that is released before it ran keeps its key, even without `hold_key_on_retry`."""
        consumer = exclusive(hold_key_on_retry=False)
        first, _second = queued(consumer, "aa")
        pulling.finish([outcomes.release(claim(consumer)[0], after=after)])
        assert ids(claim(consumer)) == ([first] if after is None else [])

    def test_a_crashed_holders_job_holds_its_key_through_the_back_off(self) -> None:
        consumer = exclusive(hold_key_on_retry=False, retry_strategy="constant:60")
        queued(consumer, "aa")
        [held] = claim(consumer)
        expire(held)
        assert claim(consumer) == []

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_a_kill_of_one_that_waits_lets_the_others_go_on(self, place: int) -> None:
        consumer = exclusive()
        made = queued(consumer, "aaaa")
        deliver(*claim(consumer))
        operating.kill([made.pop(1 + place)], by="test")
        for expected in made[1:]:
            held = claim(consumer)
            assert ids(held) == [expected]
            deliver(*held)

    def test_a_kill_of_one_that_waits_for_its_retry_frees_its_key(self) -> None:
        consumer = exclusive()
        first, second = queued(consumer, "aa")
        pulling.finish([outcomes.retry(claim(consumer)[0], "later", after=LATER)])
        operating.kill([first], by="test")
        assert ids(claim(consumer)) == [second]

    def test_a_redriven_job_takes_its_turn(self) -> None:
        consumer = exclusive()
        first, second, _third = queued(consumer, "aaa")
        say(lambda held: outcomes.reject(held, "bad"))(claim(consumer)[0])
        held = claim(consumer)
        operating.redrive([first])
        assert claim(consumer) == []
        assert ids(held) == [second]
        deliver(*held)
        assert ids(claim(consumer)) == [first]

    def test_a_dead_worker_gives_its_keys_back(self) -> None:
        consumer, node = exclusive(), uuid4()
        first, *_rest = queued(consumer, "aa")
        assert Puller(USING, consumer, node_id=node).claim(5).jobs
        pulling.abandon(node, frozenset())
        assert ids(claim(consumer)) == [first]

    @committed
    @pytest.mark.parametrize("event", ["deliver", "kill"])
    def test_who_waits_for_the_next_of_the_key_is_woken(self, event: str) -> None:
        if behind_pooler(USING):
            pytest.skip("LISTEN needs a connection of its own")
        consumer = exclusive()
        queued(consumer, "aa")
        [held] = claim(consumer)
        with closing(Listener(USING)) as listener:
            listen.wait(USING, [consumer.pk], uuid4(), LATER)
            FREEING[event](held)
            assert listener.receive(timedelta(seconds=20)) == {consumer.pk}

    def test_a_key_without_jobs_is_forgotten(self) -> None:
        consumer = exclusive()
        queued(consumer, "aab")
        while held := claim(consumer):
            deliver(*held)
        assert not ExclusiveKey.objects.exists()

    @committed
    def test_freeing_waits_for_a_claim_that_blocks(self) -> None:
        """The end of a job waits for a claim that is blocking jobs of its key, to unblock them."""
        consumer = exclusive()
        _first, second = queued(consumer, "aa")
        [held] = claim(consumer, 1)
        query("UPDATE pulljobs_job SET available_at = clock_timestamp() WHERE id = %s", [second])
        with session() as other:
            lock_key(other, consumer, "a")
            finishing = Thread(lambda: deliver(held))
            wait_until(lambda: blocked_by(other))
            other.execute("UPDATE pulljobs_job SET available_at = NULL WHERE id = %s", [second])
            other.commit()
            finishing.result()
        assert ids(claim(consumer)) == [second]

    @committed
    def test_a_job_claimed_again_before_its_key_was_freed_keeps_it(self) -> None:
        consumer = exclusive(hold_key_on_retry=False)
        queued(consumer, "aa")
        [held] = claim(consumer)
        params = {"consumer_ids": [consumer.pk], "keys": ["a"], "job_ids": [held.job_id]}
        with session() as other:
            run(other, "free_keys", params)
            other.commit()
        assert claim(consumer) == []
