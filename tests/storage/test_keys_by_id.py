"""Exclusive keys: jobs that are taken by their id, and keys that crashed processes left behind."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import ExclusiveKey, Job
from pulljobs.states import Reason
from pulljobs.storage import jobs, keys
from pulljobs.storage.rows import Refusal
from pulljobs.storage.statements import run
from tests.factories import USING
from tests.keyed import (
    blocked,
    claim,
    deliver,
    exclusive,
    ids,
    lock_key,
    queued,
    stuck,
    take,
)
from tests.sessions import Thread, blocked_by, lock_timeout, query, session, wait_until

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
LATER = timedelta(hours=1)
BLOCK = "UPDATE pulljobs_job SET available_at = NULL"


@pytest.fixture(autouse=True)
def nothing_is_stuck(db: None) -> Iterator[None]:
    with lock_timeout():
        yield
    assert stuck() == []


class TestSweep:
    def test_keys_of_jobs_that_ended_with_who_was_about_to_free_them(self) -> None:
        """A sweep frees the key of a job whose process died before it freed the key."""
        consumer = exclusive()
        _first, second = queued(consumer, "aa")
        [held] = claim(consumer)
        query("DELETE FROM pulljobs_job WHERE id = %s", [held.job_id])
        assert stuck() == [second]
        pulling.sweep_keys()
        assert ids(claim(consumer)) == [second]

    def test_idle_keys_are_forgotten_and_others_left_alone(self) -> None:
        consumer = exclusive()
        queued(consumer, "aabb")
        claim(consumer, 1)
        ExclusiveKey.objects.create(consumer_id=consumer.pk, key="idle")
        query("UPDATE pulljobs_exclusive_key SET holder = NULL WHERE key = 'b'")
        before = blocked()
        pulling.sweep_keys()
        assert set(ExclusiveKey.objects.values_list("key", flat=True)) == {"a", "b"}
        assert blocked() == before

    @committed
    def test_it_waits_for_no_lock(self) -> None:
        consumer = exclusive()
        queued(consumer, "a")
        with session() as other:
            lock_key(other, consumer, "a")
            query(BLOCK)
            pulling.sweep_keys()
        pulling.sweep_keys()

    def test_keys_whose_jobs_are_due_later_are_left_alone(self) -> None:
        """The sweep skips keys all of whose jobs wait for a retry, as after an outage."""
        consumer = exclusive(hold_key_on_retry=False)
        queued(consumer, "ab")
        for held in claim(consumer):
            pulling.finish([outcomes.retry(held, "broken", after=LATER)])
        assert run(USING, "stuck_keys", {"wanted": 10}) == []

    @committed
    def test_it_ends_though_somebody_has_the_jobs_of_keys_locked(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(keys, "SWEPT", 2)
        consumer = exclusive()
        made = queued(consumer, "ab")
        query(BLOCK)
        ExclusiveKey.objects.bulk_create(
            [ExclusiveKey(consumer_id=consumer.pk, key=key) for key in "ab"]
        )
        with session() as other:
            other.execute("SELECT FROM pulljobs_job FOR UPDATE")
            assert not keys.sweep(USING)
        pulling.sweep_keys()
        assert ids(claim(consumer)) == made


class TestTake:
    def test_the_first_of_a_free_key_is_given_and_holds_it(self) -> None:
        consumer = exclusive()
        first, second = queued(consumer, "aa")
        held = take(consumer, first)
        assert isinstance(held, Held)
        assert claim(consumer) == []
        deliver(held)
        assert ids(claim(consumer)) == [second]

    def test_a_job_behind_another_is_not_taken(self) -> None:
        consumer = exclusive()
        _first, second = queued(consumer, "aa")
        assert take(consumer, second) is Refusal.BUSY_KEY
        assert Job.objects.get(id=second).deliveries == 0

    def test_no_job_of_a_busy_key_is_taken(self) -> None:
        consumer = exclusive()
        _first, second = queued(consumer, "aa")
        [held] = claim(consumer)
        assert take(consumer, second) is Refusal.BUSY_KEY
        deliver(held)
        assert isinstance(take(consumer, second), Held)

    def test_a_dead_job_of_a_busy_key_is_not_revived(self) -> None:
        consumer = exclusive()
        first, _second = queued(consumer, "aa")
        jobs.kill(USING, [first], reason=Reason.KILLED)
        [held] = claim(consumer)
        assert take(consumer, first, "DEAD") is Refusal.BUSY_KEY
        deliver(held)
        assert isinstance(take(consumer, first, "DEAD"), Held)
        assert claim(consumer) == []

    def test_what_waits_for_its_retry_may_be_taken_by_its_id(self) -> None:
        consumer = exclusive()
        first, _second = queued(consumer, "aa")
        pulling.finish([outcomes.retry(claim(consumer)[0], "later", after=LATER)])
        assert isinstance(take(consumer, first), Held)

    def test_a_job_that_runs_is_not_refused_for_its_key(self) -> None:
        """Taking a job that is in flight returns None, because of its state, not BUSY_KEY."""
        consumer = exclusive()
        first, _second = queued(consumer, "aa")
        claim(consumer)
        assert take(consumer, first) is None

    @committed
    def test_a_revival_waits_for_a_claim_of_its_key_and_is_refused(self) -> None:
        consumer = exclusive()
        first, second = queued(consumer, "aa")
        jobs.kill(USING, [first], reason=Reason.KILLED)
        with session() as other:
            lock_key(other, consumer, "a")
            taking = Thread(lambda: take(consumer, first, "DEAD"))
            wait_until(lambda: blocked_by(other))
            other.execute(
                "UPDATE pulljobs_job SET state = 'INFLIGHT', lease_token = gen_random_uuid()"
                " WHERE id = %s",
                [second],
            )
            other.execute("UPDATE pulljobs_exclusive_key SET holder = %s", [second])
            other.commit()
        assert taking.result() is Refusal.BUSY_KEY
