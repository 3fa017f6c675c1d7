"""Limits of jobs by key, and publishes that exceed them."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from uuid import uuid4

import pytest
from django.db import transaction

from pulljobs import operating, pulling
from pulljobs.engine import outcomes
from pulljobs.errors import DuplicateMessage, KeyFull
from pulljobs.models import ArchivedJob, BoundedKey, Consumer, Job, Message
from pulljobs.publishing import Draft, Receipt, publish, publish_many
from pulljobs.pulling import Puller
from pulljobs.states import Reason, State
from pulljobs.storage import listen
from pulljobs.storage.rows import Refusal
from tests.factories import USING, ConsumerFactory, claimed
from tests.keyed import claim, deliver, ids, stuck, take
from tests.sessions import (
    Thread,
    at_once,
    blocked_by,
    counts,
    lock_timeout,
    query,
    session,
    wait_until,
)

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
LATER = timedelta(hours=1)


@pytest.fixture(autouse=True)
def nothing_is_stuck(db: None) -> Iterator[None]:
    with lock_timeout():
        yield
    assert stuck() == []


def bounded(most: int = 1, overflow: str = "reject", **options: object) -> Consumer:
    options = {"exclusive_keys": True, **options}
    consumer: Consumer = ConsumerFactory.create(
        max_queued_per_key=most, key_overflow=overflow, **options
    )
    return consumer


def send(consumer: Consumer, payload: str = "x", key: str = "a", **options: object) -> Receipt:
    return publish(consumer.channel.name, payload, key=key, **options)  # type: ignore[arg-type]  # any of its options


def waiting(consumer: Consumer) -> list[str]:
    """Return the payloads of the queued jobs, in the order of their ids."""
    rows = Job.objects.filter(consumer=consumer, state=State.QUEUED).order_by("id")
    return [bytes(row.message.payload).decode() for row in rows.select_related("message")]


class TestReject:
    def test_one_too_many_is_refused_and_nothing_written(self) -> None:
        """With a bound of 1, the second job of a key is refused. Other keys are accepted."""
        consumer = bounded()
        first = send(consumer)
        before = counts()
        with pytest.raises(KeyFull, match="max_queued_per_key") as refused:
            send(consumer, message_id="m")
        assert counts() == before
        assert (refused.value.key, refused.value.consumer) == ("a", consumer.name)
        assert refused.value.in_the_way == first.message_id
        assert send(consumer, key="b").job_ids

    def test_the_eleventh_of_ten(self) -> None:
        consumer = bounded(10)
        for _number in range(10):
            send(consumer)
        with pytest.raises(KeyFull):
            send(consumer)

    @committed
    def test_many_publishers_at_once_fill_it_exactly(self) -> None:
        """With a bound of 10, exactly 10 of 50 parallel publishes to a key are accepted."""
        consumer = bounded(10)

        def try_some(_number: int) -> list[bool]:
            return [accepted(consumer) for _time in range(5)]

        done = Counter(result for some in at_once(10, try_some) for result in some)
        assert done == {True: 10, False: 40}
        assert Job.objects.count() == 10

    def test_what_is_in_flight_does_not_count(self) -> None:
        consumer = bounded()
        send(consumer)
        [held] = claim(consumer)
        send(consumer)
        with pytest.raises(KeyFull):
            send(consumer)
        deliver(held)
        with pytest.raises(KeyFull):
            send(consumer)

    def test_unless_the_bound_is_of_live_jobs(self) -> None:
        """If live jobs count, a key with a bound of 1 is full while its job is in flight."""
        consumer = bounded(key_limit_counts="live")
        send(consumer)
        [held] = claim(consumer)
        with pytest.raises(KeyFull):
            send(consumer)
        deliver(held)
        assert send(consumer).job_ids

    @pytest.mark.parametrize("overflow", ["drop_oldest", "replace"])
    def test_where_all_are_in_flight_nothing_gives_way(self, overflow: str) -> None:
        consumer = bounded(1, overflow, key_limit_counts="live")
        send(consumer)
        [held] = claim(consumer)
        with pytest.raises(KeyFull):
            send(consumer)
        assert held.job_id == Job.objects.get(state=State.INFLIGHT).pk

    def test_dead_jobs_do_not_count(self) -> None:
        consumer = bounded()
        operating.kill(send(consumer).job_ids, by="test")
        assert send(consumer).job_ids

    def test_one_consumer_that_is_full_refuses_the_message_for_all(self) -> None:
        consumer = bounded()
        ConsumerFactory.create(channel=consumer.channel)
        assert len(send(consumer).job_ids) == 2
        with pytest.raises(KeyFull):
            send(consumer)
        assert counts()["pulljobs_job"] == 2

    def test_a_duplicate_is_one_even_if_the_key_is_full(self) -> None:
        """A repeated client message id raises DuplicateMessage even where its key is full."""
        consumer = bounded()
        send(consumer, message_id="m")
        with pytest.raises(DuplicateMessage):
            send(consumer, message_id="m")

    def test_a_refused_client_id_is_not_taken(self) -> None:
        consumer = bounded()
        send(consumer)
        with pytest.raises(KeyFull):
            send(consumer, message_id="m")
        deliver(*claim(consumer))
        assert send(consumer, message_id="m").job_ids

    def test_messages_without_a_key_are_not_counted(self) -> None:
        consumer = bounded()
        assert len(publish_many(consumer.channel.name, ["x"] * 5)) == 5
        assert publish(consumer.channel.name, "x").job_ids

    def test_each_message_of_many_has_its_own_receipt(self) -> None:
        consumer = bounded(2)
        drafts = [Draft(payload=str(n), key=key) for n, key in enumerate("aaabab")]
        drafts.append(Draft(payload="no key"))
        receipts = publish_many(consumer.channel.name, drafts)
        assert [receipt.key_full for receipt in receipts] == [0, 0, 1, 0, 1, 0, 0]
        assert receipts[2].message_id == receipts[1].message_id
        assert waiting(consumer) == ["0", "1", "3", "5", "no key"]

    def test_the_transaction_of_a_refused_publish_goes_on(self) -> None:
        consumer = bounded()
        with transaction.atomic(USING):
            send(consumer)
            with pytest.raises(KeyFull):
                send(consumer)
            send(consumer, key="b")
        assert Job.objects.count() == 2

    def test_an_exclusive_consumer_is_not_needed(self) -> None:
        consumer = bounded(2, exclusive_keys=False)
        send(consumer)
        send(consumer)
        with pytest.raises(KeyFull):
            send(consumer)
        assert len(claimed(consumer, 5)) == 2

    def test_a_retry_that_comes_back_does_not_count_until_it_is_there(self) -> None:
        consumer = bounded()
        send(consumer)
        [held] = claim(consumer)
        send(consumer)
        pulling.finish([outcomes.retry(held, "later", after=LATER)])
        with pytest.raises(KeyFull):
            send(consumer)


@committed
def test_batches_of_the_same_keys_in_any_order_do_not_block_each_other() -> None:
    consumer = bounded(4)
    drafts = [Draft(payload="x", key=str(number)) for number in range(50)]

    def send_all(number: int) -> int:
        receipts = publish_many(consumer.channel.name, drafts[:: 1 if number % 2 else -1])
        return sum(not receipt.key_full for receipt in receipts)

    assert at_once(4, send_all) == [50] * 4


def accepted(consumer: Consumer) -> bool:
    try:
        return bool(send(consumer).job_ids)
    except KeyFull:
        return False


@committed
class TestDropOldest:
    def test_the_oldest_is_dead_and_archived(self) -> None:
        consumer = bounded(2, "drop_oldest")
        first, *_rest = [send(consumer, payload).job_ids[0] for payload in "abc"]
        assert waiting(consumer) == ["b", "c"]
        assert Job.objects.get(id=first).reason == Reason.KEY_OVERFLOW
        assert ArchivedJob.objects.get(job_id=first).reason == Reason.KEY_OVERFLOW

    def test_what_is_in_flight_stays(self) -> None:
        consumer = bounded(1, "drop_oldest")
        send(consumer, "a")
        [held] = claim(consumer)
        for payload in "bcd":
            send(consumer, payload)
        assert waiting(consumer) == ["d"]
        deliver(held)
        assert len(claim(consumer)) == 1

    def test_a_lower_bound_drops_all_above_it(self) -> None:
        consumer = bounded(5, "drop_oldest")
        for payload in "abcde":
            send(consumer, payload)
        Consumer.objects.update(max_queued_per_key=2)
        send(consumer, "f")
        assert waiting(consumer) == ["e", "f"]

    def test_jobs_blocked_behind_a_dropped_one_go_on(self) -> None:
        consumer = bounded(2, "drop_oldest")
        send(consumer, "a")
        [held] = claim(consumer)
        send(consumer, "b")
        send(consumer, "c")
        assert claim(consumer) == []
        deliver(held)
        send(consumer, "d", delay=LATER)
        [held] = claim(consumer)
        assert Job.objects.get(id=held.job_id).message.payload == b"c"

    def test_a_retry_to_come_that_is_dropped_frees_its_key(self) -> None:
        consumer = bounded(1, "drop_oldest")
        send(consumer, "a")
        pulling.finish([outcomes.retry(claim(consumer)[0], "later", after=LATER)])
        send(consumer, "b")
        assert waiting(consumer) == ["b"]
        assert len(claim(consumer)) == 1

    @committed
    def test_a_rollback_drops_nothing(self) -> None:
        consumer = bounded(1, "drop_oldest")
        send(consumer, "a")
        with transaction.atomic(USING):
            send(consumer, "b")
            transaction.set_rollback(True, using=USING)
        assert waiting(consumer) == ["a"]
        assert len(claim(consumer)) == 1

    @committed
    def test_many_publishers_at_once_leave_as_many_as_may_wait(self) -> None:
        consumer = bounded(3, "drop_oldest")
        at_once(6, lambda number: [send(consumer, str(number)) for _time in range(5)])
        assert len(waiting(consumer)) == 3
        assert ArchivedJob.objects.count() == 27

    @committed
    @pytest.mark.parametrize("overflow", ["drop_oldest", "replace"])
    def test_what_a_claim_takes_at_the_same_moment_gives_no_way(self, overflow: str) -> None:
        consumer = bounded(1, overflow, exclusive_keys=False)
        [first] = send(consumer, "a").job_ids
        with session() as other:
            other.execute(
                "UPDATE pulljobs_job SET state = 'INFLIGHT', lease_token = gen_random_uuid()"
            )
            sending = Thread(lambda: send(consumer, "b"))
            wait_until(lambda: blocked_by(other))
            other.commit()
            receipt = sending.result()
        assert receipt.replaced == ()
        assert Job.objects.get(state=State.INFLIGHT).pk == first
        assert waiting(consumer) == ["b"]


class TestReplace:
    def test_the_newest_payload_takes_the_place_of_the_one_that_waits(self) -> None:
        """After three publishes one job with the last payload is queued. All receipts name it."""
        consumer = bounded(1, "replace")
        first, second, third = [send(consumer, payload) for payload in "abc"]
        assert waiting(consumer) == ["c"]
        assert first.replaced == ()
        assert second.job_ids == third.job_ids == first.job_ids == list(third.replaced)
        assert Message.objects.get(id=third.message_id).payload == b"c"

    def test_a_job_in_flight_keeps_its_payload_and_is_followed_by_the_newest_only(self) -> None:
        consumer = bounded(1, "replace")
        send(consumer, "a")
        [held] = claim(consumer)
        for payload in "bcd":
            send(consumer, payload)
        assert Job.objects.get(id=held.job_id).message.payload == b"a"
        deliver(held)
        [next_one] = claim(consumer)
        assert Job.objects.get(id=next_one.job_id).message.payload == b"d"
        deliver(next_one)
        assert claim(consumer) == []

    def test_the_replacement_starts_again(self) -> None:
        consumer = bounded(1, "replace")
        send(consumer, "a")
        pulling.finish([outcomes.retry(claim(consumer)[0], "broken", after=LATER)])
        send(consumer, "b", priority=3)
        row = Job.objects.get()
        assert (row.retry_count, row.deliveries, row.error, row.priority) == (0, 0, None, 3)
        assert len(claim(consumer)) == 1

    @committed
    def test_another_priority_is_met_by_who_claims_that_already(self) -> None:
        """A job is claimed below the low-water mark of the priority that a replacement gave it.

        The job keeps its old time, which the process has already passed for that priority.
        """
        consumer = bounded(1, "replace", exclusive_keys=False)
        replaced = send(consumer, "a").job_ids
        puller, since = Puller(USING, consumer), Job.objects.get().available_at
        assert since

        def is_above() -> bool:
            send(consumer, "urgent", key=uuid4().hex, priority=5)
            puller.claim(1)
            mark = puller._claimer.marks.positions.get(5)
            return mark is not None and mark.available_at > since

        wait_until(is_above)
        send(consumer, "b", priority=5)
        assert replaced[0] in {job.id for job, _message in puller.claim(100).jobs}

    def test_a_replaced_job_keeps_its_place_in_the_queue(self) -> None:
        """However often it is replaced, a job is claimed before the jobs that came after it."""
        consumer = bounded(1, "replace", exclusive_keys=False)
        first = send(consumer, "a").job_ids
        send(consumer, "other", key="b")
        for _number in range(50):
            send(consumer, "c")
        assert ids(claimed(consumer)) == first

    def test_a_delay_goes_with_it(self) -> None:
        consumer = bounded(1, "replace")
        send(consumer, "a")
        send(consumer, "b", delay=LATER)
        assert claim(consumer) == []

    def test_each_day_of_its_delay_has_24_hours(self) -> None:
        """A day of a replaced job's delay has 24 hours, even if the clocks change meanwhile."""
        consumer = bounded(1, "replace")
        send(consumer, "a")
        query("SET LOCAL TIME ZONE 'Europe/Berlin'")
        for days in range(30, 360, 30):
            send(consumer, "b", delay=timedelta(days=days))
            [(late,)] = query("SELECT available_at - clock_timestamp() FROM pulljobs_job")
            assert timedelta(days=days, minutes=-30) < late <= timedelta(days=days)

    def test_of_several_the_last_gives_way(self) -> None:
        consumer = bounded(2, "replace")
        for payload in "abc":
            send(consumer, payload)
        assert waiting(consumer) == ["a", "c"]

    def test_other_consumers_get_a_job_of_their_own(self) -> None:
        consumer = bounded(1, "replace")
        other = ConsumerFactory.create(channel=consumer.channel)
        first, second = send(consumer, "a"), send(consumer, "b")
        assert second.job_ids[0] == first.job_ids[0]
        assert second.job_ids[1] != first.job_ids[1]
        assert second.replaced == (first.job_ids[0],)
        assert waiting(other) == ["a", "b"]

    @committed
    def test_its_key_goes_on_when_it_was_freed_meanwhile(self) -> None:
        """A blocked job whose key becomes free while a publisher has it locked is unblocked."""
        consumer = bounded(1, "replace")
        send(consumer, "a")
        [held] = claim(consumer)
        send(consumer, "b")
        assert claim(consumer) == []
        publishing = Thread(lambda: replace_and_wait(consumer))
        try:
            wait_until(lambda: OPEN == [True])
            deliver(held)
        finally:
            OPEN.clear()
        publishing.result()
        assert len(claim(consumer)) == 1

    def test_its_waiters_are_woken(self) -> None:
        consumer = bounded(1, "replace")
        listen.wait(USING, [consumer.pk], uuid4(), LATER)
        send(consumer, "a")
        assert send(consumer, "b").replaced


OPEN: list[bool] = []


def replace_and_wait(consumer: Consumer) -> None:
    with transaction.atomic(USING):
        send(consumer, "c")
        OPEN.append(True)
        wait_until(lambda: not OPEN)


class TestOpenPublishers:
    @committed
    @pytest.mark.parametrize("overflow", ["reject", "drop_oldest", "replace"])
    def test_one_whose_transaction_stays_open_stops_no_claim_of_the_key(
        self, overflow: str
    ) -> None:
        """Claims, even by id, settlements and kills wait for no open transaction of a publisher."""
        consumer = bounded(4, overflow)
        made = [send(consumer, payload).job_ids[0] for payload in "abc"]
        publishing = Thread(lambda: replace_and_wait(consumer))
        try:
            wait_until(lambda: OPEN == [True])
            [held] = claim(consumer)
            assert held.job_id == made[0]
            assert claim(consumer) == []
            deliver(held)
            held = take(consumer, made[1])  # type: ignore[assignment]  # it is free
            assert not isinstance(held, Refusal)
            assert held is not None
            pulling.finish([outcomes.retry(held, "again", after=timedelta())])
            assert ids(claim(consumer)) == [made[1]]
            operating.kill([made[1]], by="test")
            assert ids(claim(consumer)) == [made[2]]
        finally:
            OPEN.clear()
        publishing.result()

    @committed
    def test_one_that_drops_a_job_stops_no_claim_of_the_others(self) -> None:
        consumer = bounded(3, "drop_oldest")
        send(consumer, "first")
        held = claim(consumer)
        made = [send(consumer, payload).job_ids[0] for payload in "abc"]
        assert claim(consumer) == []
        publishing = Thread(lambda: replace_and_wait(consumer))
        try:
            wait_until(lambda: OPEN == [True])
            deliver(*held)
            assert ids(claim(consumer)) == [made[1]]
        finally:
            OPEN.clear()
        publishing.result()

    @committed
    def test_what_a_rollback_lets_go_again_comes_after_what_was_claimed_meanwhile(self) -> None:
        consumer = bounded(2, "drop_oldest")
        first, second = (send(consumer, payload).job_ids[0] for payload in "ab")
        with transaction.atomic(USING):
            send(consumer, "c")
            [held] = Thread(lambda: claim(consumer)).result()
            transaction.set_rollback(True, using=USING)
        assert held.job_id == second
        deliver(held)
        assert ids(claim(consumer)) == [first]

    @committed
    def test_a_second_publisher_of_the_key_waits_and_of_others_does_not(self) -> None:
        consumer = bounded(1)
        publishing = Thread(lambda: replace_and_wait(consumer))
        wait_until(lambda: OPEN == [True])
        try:
            assert send(consumer, key="b").job_ids
            second = Thread(lambda: accepted(consumer))
            wait_until(
                lambda: bool(
                    query(
                        "SELECT pid FROM pg_stat_activity"
                        " WHERE datname = current_database() AND wait_event_type = 'Lock'"
                    )
                )
            )
        finally:
            OPEN.clear()
        publishing.result()
        assert second.result() is False


def test_keys_without_jobs_are_forgotten() -> None:
    consumer = bounded()
    send(consumer, key="a")
    send(consumer, key="b")
    deliver(*claim(consumer, 1))
    pulling.sweep_keys()
    assert BoundedKey.objects.count() == 1
