"""Bounds of claims (a pause, jobs in flight and bytes), and repeated claims."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import uuid4
from zoneinfo import ZoneInfo

import pytest
from django.core.exceptions import ValidationError
from django.utils import timezone

from pulljobs import operating, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.low_water_marks import LowWaterMarks
from pulljobs.engine.outcomes import Held
from pulljobs.models import Consumer, Job, Lease
from pulljobs.publishing import publish
from pulljobs.pulling import Claim, Puller
from pulljobs.states import State
from pulljobs.storage import listen, messages
from pulljobs.storage.listen import Listener
from pulljobs.storage.rows import Refusal, StoredMessage
from pulljobs.storage.sessions import behind_pooler
from tests.factories import (
    USING,
    ConsumerFactory,
    JobFactory,
    claim_from_head,
    claimed,
    published,
)
from tests.sessions import Thread, at_once, blocked_by, contents, query, run, session, wait_until

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
MINUTE = timedelta(minutes=1)
LONG = timedelta(seconds=20)
NEW_YORK = ZoneInfo("America/New_York")
KIRITIMATI = ZoneInfo("Pacific/Kiritimati")


def held(claim: Claim) -> list[Held]:
    return (
        [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
        if claim.taken
        else []
    )


def deliver(*jobs: Held) -> None:
    assert len(pulling.finish([outcomes.deliver(job) for job in jobs]).states) == len(jobs)


@pytest.fixture
def listener() -> Iterator[Listener]:
    if behind_pooler(USING):
        pytest.skip("LISTEN needs a connection of its own")
    with closing(Listener(USING)) as opened:
        yield opened


class TestPause:
    @pytest.mark.parametrize("paused_row", ["consumer", "channel"])
    def test_claims_give_nothing_while_settles_and_leases_go_on(self, paused_row: str) -> None:
        consumer = ConsumerFactory.create()
        published(consumer, 3)
        [job] = claimed(consumer)
        paused = consumer if paused_row == "consumer" else consumer.channel
        operating.pause(paused, timezone.now() + MINUTE)
        claim = Puller(USING, consumer).claim(5)
        assert (claim.taken, claim.more, claim.refusal) == (None, False, Refusal.PAUSED)
        assert pulling.renew([job])
        deliver(job)
        operating.pause(paused, None)
        assert len(Puller(USING, consumer).claim(5).jobs) == 2

    def test_who_waits_knows_when_the_pause_ends(self) -> None:
        consumer = ConsumerFactory.create()
        published(consumer)
        operating.pause(consumer, timezone.now() + MINUTE)
        due = Puller(USING, consumer).claim(1).next_due
        assert due is not None
        assert MINUTE / 2 < due <= MINUTE
        operating.pause(consumer, timezone.now() - MINUTE)
        assert Puller(USING, consumer).claim(1).jobs

    def test_no_job_is_taken_by_its_id(self) -> None:
        job = JobFactory.create()
        operating.pause(job.consumer, timezone.now() + MINUTE)
        assert pulling.take(job.consumer, job.id, State.QUEUED) is Refusal.PAUSED

    @committed
    def test_its_end_wakes_who_waits(self, listener: Listener) -> None:
        consumer = ConsumerFactory.create()
        listen.wait(USING, [consumer.pk], uuid4(), MINUTE)
        operating.pause(consumer.channel, None)
        assert listener.receive(LONG) == {consumer.pk}

    def test_a_time_without_a_zone_is_refused(self) -> None:
        with pytest.raises(ValueError, match="aware"):
            operating.pause(ConsumerFactory.create(), timezone.now().replace(tzinfo=None))

    @pytest.mark.parametrize(
        "until",
        [
            datetime.max.replace(tzinfo=NEW_YORK),
            datetime.max.replace(tzinfo=UTC),
            datetime.min.replace(tzinfo=UTC),
            datetime.min.replace(tzinfo=KIRITIMATI),
        ],
    )
    def test_a_time_that_cannot_be_read_again_is_refused(self, until: datetime) -> None:
        """A time that Python could not read back is refused, also as the end of a pause."""
        consumer = ConsumerFactory.create()
        with pytest.raises(ValueError, match="within the years 1000 to 8999"):
            operating.pause(consumer, until)
        with pytest.raises(ValueError, match=r"within (the years|100 years)"):
            operating.check_due(until)
        consumer.refresh_from_db()
        assert consumer.paused_until is None

    def test_a_duration_is_no_time(self) -> None:
        duration: Any = timedelta(minutes=5)
        for act in (partial(operating.pause, ConsumerFactory.create()), operating.check_due):
            with pytest.raises(ValueError, match=r"aware datetime, not datetime\.timedelta"):
                act(duration)

    @pytest.mark.parametrize("zone", [NEW_YORK, KIRITIMATI])
    def test_the_last_time_and_the_first_can_be_read_everywhere(self, zone: ZoneInfo) -> None:
        consumer = ConsumerFactory.create()
        for until in (operating.YEARS[0], operating.YEARS[1] - timedelta(microseconds=1)):
            operating.pause(consumer, until.astimezone(zone))
            consumer.refresh_from_db()
            assert consumer.paused_until == until


def test_a_deleted_consumer_is_named_as_the_reason() -> None:
    consumer = ConsumerFactory.create(deleted_at=timezone.now())
    assert Puller(USING, consumer).claim(1).refusal is Refusal.DELETED


class TestInFlight:
    def test_claims_fill_what_room_there_is(self) -> None:
        """A claim takes no more jobs than `max_in_flight` leaves, and reports this limit."""
        consumer = ConsumerFactory.create(max_in_flight=3)
        published(consumer, 10)
        puller = Puller(USING, consumer)
        first = puller.claim(10)
        assert (len(first.jobs), first.refusal) == (3, Refusal.MAX_IN_FLIGHT)
        second = puller.claim(10)
        assert (second.taken, second.refusal) == (None, Refusal.MAX_IN_FLIGHT)
        deliver(held(first)[0])
        third = puller.claim(10)
        assert (len(third.jobs), third.refusal) == (1, Refusal.MAX_IN_FLIGHT)

    def test_a_finish_of_one_of_a_claim_makes_room(self) -> None:
        """A job that a retry gives back counts no longer, although the lease still lists its id."""
        consumer = ConsumerFactory.create(max_in_flight=2)
        published(consumer, 4)
        first, _other = held(Puller(USING, consumer).claim(2))
        pulling.finish([outcomes.retry(first, "later", after=MINUTE)])
        assert len(Puller(USING, consumer).claim(2).jobs) == 1

    def test_a_claim_that_finds_all_there_is_was_not_bounded(self) -> None:
        consumer = ConsumerFactory.create(max_in_flight=3)
        published(consumer, 2)
        assert Puller(USING, consumer).claim(10).refusal is None
        assert Puller(USING, consumer).claim(10).refusal is None

    def test_what_was_retried_makes_room_until_it_is_claimed_again(self) -> None:
        consumer = ConsumerFactory.create(max_in_flight=1)
        published(consumer, 2)
        puller = Puller(USING, consumer)
        [first] = held(puller.claim(2))
        pulling.finish([outcomes.retry(first, "later", after=timedelta())])
        [(again, _message)] = puller.claim(2).jobs
        assert (again.id != first.job_id) == (again.deliveries == 1)
        assert puller.claim(2).refusal is Refusal.MAX_IN_FLIGHT

    def test_a_job_is_taken_by_its_id_only_if_there_is_room(self) -> None:
        consumer = ConsumerFactory.create(max_in_flight=1)
        first, second = published(consumer, 2)
        assert isinstance(pulling.take(consumer, first, State.QUEUED), tuple)
        assert pulling.take(consumer, second, State.QUEUED) is Refusal.MAX_IN_FLIGHT
        assert Job.objects.get(id=second).deliveries == 0

    @committed
    def test_a_bound_set_later_is_obeyed_at_once(self) -> None:
        consumer = ConsumerFactory.create()
        published(consumer, 10)
        puller = Puller(USING, consumer)
        assert len(puller.claim(2).jobs) == 2
        Consumer.objects.update(max_in_flight=3)
        assert len(puller.claim(10).jobs) == 1
        Consumer.objects.update(max_in_flight=None)
        assert len(puller.claim(10).jobs) == 7

    @committed
    def test_many_claimers_never_hold_more(self) -> None:
        """No instant has more jobs in flight than `max_in_flight`, whichever processes claim them.

        Only three threads claim: a claim waits at most 2 s for the lock, and poolers are slow.
        """
        consumer = ConsumerFactory.create(max_in_flight=5)
        made = published(consumer, 100)
        seen: list[int] = []

        def churn(_number: int) -> list[int]:
            puller, done = Puller(USING, consumer), []
            while Job.objects.exists():
                mine = held(puller.claim(3))
                [(count,)] = query("SELECT count(*) FROM pulljobs_job WHERE state = 'INFLIGHT'")
                seen.append(count)
                done += [job.job_id for job in mine]
                if mine:
                    deliver(*mine)
            return done

        done = [job_id for mine in at_once(3, churn) for job_id in mine]
        assert sorted(done) == sorted(made)
        assert max(seen) <= 5

    @committed
    def test_a_claim_waits_for_one_that_counts(self) -> None:
        consumer = ConsumerFactory.create(max_in_flight=1)
        published(consumer, 2)
        with session() as other:
            run(other, "lock_consumer", {"consumer_id": consumer.pk})
            claiming = Thread(lambda: Puller(USING, consumer).claim(1))
            wait_until(lambda: blocked_by(other))
            other.commit()
            assert len(claiming.result().jobs) == 1

    @committed
    def test_a_settlement_below_the_limit_wakes_waiters(self, listener: Listener) -> None:
        bounded, free = ConsumerFactory.create(max_in_flight=1), ConsumerFactory.create()
        for consumer in (bounded, free):
            published(consumer)
            listen.wait(USING, [consumer.pk], uuid4(), MINUTE)
        jobs = claimed(free) + held(Puller(USING, bounded).claim(1))
        deliver(*jobs)
        assert listener.receive(LONG) == {bounded.pk}
        assert listener.receive(timedelta(seconds=0.2)) == set()

    @committed
    def test_a_kill_below_the_limit_wakes_waiters(self, listener: Listener) -> None:
        consumer = ConsumerFactory.create(max_in_flight=1)
        published(consumer, 2)
        listen.wait(USING, [consumer.pk], uuid4(), MINUTE)
        [running] = held(Puller(USING, consumer).claim(1))
        operating.kill([running.job_id], by="test")
        assert listener.receive(LONG) == {consumer.pk}

    def test_no_other_consumer_is_looked_at(self) -> None:
        bounded, other = ConsumerFactory.create(max_in_flight=1), ConsumerFactory.create()
        published(other, 5)
        assert len(claimed(other, 5)) == 5
        published(bounded, 2)
        assert len(Puller(USING, bounded).claim(2).jobs) == 1


def sized(consumer: Consumer, *sizes: int) -> list[int]:
    return [publish(consumer.channel.name, b"x" * size).job_ids[0] for size in sizes]


class TestBytes:
    @committed
    def test_what_fits_is_claimed_and_the_next_is_untouched(self) -> None:
        consumer = ConsumerFactory.create()
        made = sized(consumer, 400, 400, 400)
        puller = Puller(USING, consumer)
        before = contents("pulljobs_job")
        claim = puller.claim(10, max_bytes=1000)
        assert [job.id for job, _message in claim.jobs] == made[:2]
        assert claim.refusal is Refusal.MAX_BYTES
        left = contents("pulljobs_job")["pulljobs_job"]
        assert len(set(left) & set(before["pulljobs_job"])) == 1
        assert [job.id for job, _message in puller.claim(10).jobs] == made[2:]

    @committed
    def test_a_first_job_that_is_too_large_stays_as_it_was(self) -> None:
        consumer = ConsumerFactory.create()
        made = sized(consumer, 5000, 10)
        puller = Puller(USING, consumer)
        before = contents("pulljobs_job", "pulljobs_lease")
        claim = puller.claim(10, max_bytes=1000)
        assert (claim.taken, claim.refusal) == (None, Refusal.MAX_BYTES)
        assert contents("pulljobs_job", "pulljobs_lease") == before
        assert [job.id for job, _message in puller.claim(10, max_bytes=5010).jobs] == made

    def test_headers_count(self) -> None:
        consumer = ConsumerFactory.create()
        publish(consumer.channel.name, b"1234", headers={"ab": "cd"})
        puller = Puller(USING, consumer)
        assert puller.claim(1, max_bytes=7).refusal is Refusal.MAX_BYTES
        assert puller.claim(1, max_bytes=8).refusal is None

    def test_payloads_that_do_not_fit_are_not_read(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Large payloads are not sent from the server only to learn that they do not fit."""
        read, read_messages = [], messages.read_messages
        consumer = ConsumerFactory.create()
        sized(consumer, 400, 400, 400)

        def note(using: str, ids: Sequence[int]) -> dict[int, StoredMessage]:
            read.append(len(ids))
            return read_messages(using, ids)

        monkeypatch.setattr(messages, "read_messages", note)
        assert len(Puller(USING, consumer).claim(3, max_bytes=1000).jobs) == 2
        assert read == [2]

    def test_the_bound_of_jobs_in_flight_goes_with_it(self) -> None:
        consumer = ConsumerFactory.create(max_in_flight=2)
        sized(consumer, 10, 10, 10)
        assert len(Puller(USING, consumer).claim(3, max_bytes=100).jobs) == 2


class TestRequests:
    def test_a_repeat_gets_the_same_and_nothing_more(self) -> None:
        consumer = ConsumerFactory.create()
        published(consumer, 5)
        first = Puller(USING, consumer).claim(2, request_id="r")
        again = Puller(USING, consumer).claim(2, request_id="r")
        assert (again.taken, again.jobs, again.more) == (first.taken, first.jobs, False)
        assert Job.objects.filter(state="INFLIGHT").count() == 2

    def test_a_repeat_gets_only_what_is_still_held(self) -> None:
        consumer = ConsumerFactory.create()
        published(consumer, 3)
        jobs = held(Puller(USING, consumer).claim(3, request_id="r"))
        deliver(jobs[0])
        assert held(Puller(USING, consumer).claim(3, request_id="r")) == jobs[1:]
        pulling.renew(jobs[2:])
        assert held(Puller(USING, consumer).claim(3, request_id="r")) == jobs[1:]

    def test_a_claim_under_a_taken_id_took_nothing_and_learned_nothing(self) -> None:
        """A claim that is refused as repeated moves no low-water mark past the jobs it saw."""
        consumer = ConsumerFactory.create()
        published(consumer, 4)
        assert claim_from_head(consumer, 2, request_id="r").taken
        claimed = claim_from_head(consumer, 2, request_id="r")
        assert claimed.refusal is Refusal.REPEATED
        assert (claimed.taken, claimed.jobs, claimed.reached) == (None, [], {})

    def test_after_its_lease_the_id_is_free(self) -> None:
        consumer = ConsumerFactory.create()
        published(consumer, 2)
        deliver(*held(Puller(USING, consumer).claim(1, request_id="r")))
        assert not Lease.objects.exists()
        assert len(Puller(USING, consumer).claim(2, request_id="r").jobs) == 1

    def test_a_claim_that_gave_nothing_leaves_the_id_free(self) -> None:
        consumer = ConsumerFactory.create()
        assert Puller(USING, consumer).claim(1, request_id="r").taken is None
        published(consumer)
        assert Puller(USING, consumer).claim(1, request_id="r").taken

    def test_ids_are_each_consumers_own(self) -> None:
        for consumer in (ConsumerFactory.create(), ConsumerFactory.create()):
            published(consumer)
            assert Puller(USING, consumer).claim(1, request_id="r").jobs

    @committed
    def test_repeats_at_the_same_moment_get_one_claim(self) -> None:
        consumer = ConsumerFactory.create()
        published(consumer, 20)
        claims = at_once(6, lambda _number: Puller(USING, consumer).claim(2, request_id="r"))
        assert len({tuple(held(claim)) for claim in claims}) == 1
        assert Job.objects.filter(state="INFLIGHT").count() == 2

    @committed
    def test_a_repeat_waits_for_the_first_and_skips_none(self) -> None:
        """A repeated claim gets the jobs of the first, and the next claim gets the others."""
        consumer = ConsumerFactory.create()
        published(consumer, 4)
        puller = Puller(USING, consumer)
        with session() as other:
            [row] = run(other, "claim", claim_params(consumer, "r"))
            again = Thread(lambda: (puller.claim(2, request_id="r"), puller.claim(4)))
            wait_until(lambda: blocked_by(other))
            other.commit()
        repeat, rest = again.result()
        assert {job.lease_token for job in held(repeat)} == {row[3]}
        assert len(held(repeat)) == len(rest.jobs) == 2


def claim_params(consumer: Consumer, request_id: str) -> dict[str, object]:
    return {
        "consumer_id": consumer.pk,
        "wanted": 2,
        "node_id": None,
        "via": Lease.Via.PULL,
        "lease_duration": None,
        "max_lease": MINUTE,
        "request_id": request_id,
        "guarded": False,
        **LowWaterMarks().entry_above()._asdict(),
    }


@pytest.mark.parametrize(
    ("limits", "field"),
    [
        ({"max_in_flight": 0}, "max_in_flight"),
        ({"max_in_flight_per_key": 0}, "max_in_flight_per_key"),
        ({"rate_burst": 5}, "rate_burst"),
        ({"rate": "5/s", "rate_burst": 0}, "rate_burst"),
        ({"rate": "5/s", "rate_burst": 5, "rate_window": True}, "rate_burst"),
        ({"rate_window": True}, "rate_window"),
        ({"rate_per_key": True}, "rate_per_key"),
        ({"exclusive_keys": True, "max_in_flight_per_key": 2}, "exclusive_keys"),
        ({"exclusive_keys": True, "fair_by_key": True}, "exclusive_keys"),
        ({"key_overflow": "drop_oldest"}, "key_overflow"),
        ({"key_limit_counts": "live"}, "key_limit_counts"),
        ({"max_queued_per_key": 1, "key_overflow": "drop"}, "key_overflow"),
        ({"max_queued_per_key": 1, "key_limit_counts": "all"}, "key_limit_counts"),
    ],
)
def test_limits_that_contradict_each_other_are_not_saved(
    limits: dict[str, Any], field: str
) -> None:
    """A consumer whose limits contradict each other is not saved, and the error names the field."""
    consumer = ConsumerFactory.create()
    for name, value in limits.items():
        setattr(consumer, name, value)
    with pytest.raises(ValidationError) as refused:
        consumer.save()
    assert [*refused.value.message_dict] == [field]
    with pytest.raises(ValidationError):
        consumer.save(update_fields=[*limits])
    consumer.save(update_fields=["paused_until"])
