"""Throttles: nothing of a consumer is claimed before a time, by any process and any way in."""

from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta
from uuid import uuid4

import pytest
from django.utils import timezone

from pulljobs import operating, pulling
from pulljobs.models import Consumer
from pulljobs.pulling import Claim, Puller
from pulljobs.states import State
from pulljobs.storage import listen, throttles
from pulljobs.storage.listen import Listener
from pulljobs.storage.rows import NotYet, Refusal, Taken
from pulljobs.storage.sessions import behind_pooler
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import Thread, blocked_by, query, run, session, wait_until
from tests.storage.test_low_water_marks import work_on

pytestmark = pytest.mark.django_db
committed = pytest.mark.django_db(transaction=True)
MINUTE = timedelta(minutes=1)
LONG = timedelta(seconds=20)


def throttle(consumer: Consumer, wait: timedelta = MINUTE) -> None:
    throttles.throttle(USING, {consumer.pk: wait.total_seconds()})


def until(consumer: Consumer) -> datetime:
    moment: datetime | None = Consumer.objects.get(pk=consumer.pk).throttled_until
    assert moment is not None
    return moment


def pass_minute() -> None:
    query("UPDATE pulljobs_consumer SET throttled_until = throttled_until - interval '1 minute'")


def is_refused(claim: Claim) -> bool:
    wait = claim.limited_for
    return (
        (claim.taken, claim.refusal) == (None, Refusal.THROTTLED)
        and wait is not None
        and MINUTE - LONG < wait <= MINUTE
    )


@pytest.mark.parametrize(
    "fields",
    [{}, {"exclusive_keys": True}, {"rate": "100/s"}, {"max_in_flight": 5}],
    ids=["plain", "exclusive", "rate", "max_in_flight"],
)
def test_a_throttled_consumer_is_not_claimed_before_the_time(fields: dict[str, object]) -> None:
    consumer, other = ConsumerFactory.create(**fields), ConsumerFactory.create()
    for key in "abc":
        published(consumer, key=key)
    published(other, 3)
    puller = Puller(USING, consumer)
    assert puller.claim(1).taken  # From now on it knows the guards of the consumer.
    throttle(consumer)
    assert is_refused(puller.claim(3))
    assert is_refused(Puller(USING, consumer).claim(3))
    assert len(Puller(USING, other).claim(3).jobs) == 3
    pass_minute()
    assert len(puller.claim(3).jobs) == 2


@committed
def test_the_shorter_claim_statement_respects_a_throttle() -> None:
    puller = Puller(USING, ConsumerFactory.create())
    work_on(puller)
    published(puller.consumer, 3)
    throttle(puller.consumer)
    assert is_refused(puller.claim(3))


def test_a_job_is_taken_by_its_id_only_after_the_throttle() -> None:
    consumer = ConsumerFactory.create()
    [job_id] = published(consumer)
    throttle(consumer)
    refused = pulling.take(consumer, job_id, State.QUEUED)
    assert isinstance(refused, NotYet)
    assert refused.reason is Refusal.THROTTLED
    assert MINUTE - LONG < refused.next_due <= MINUTE
    pass_minute()
    assert isinstance(pulling.take(consumer, job_id, State.QUEUED), Taken)


def test_a_shorter_throttle_does_not_end_a_longer_one() -> None:
    consumer = ConsumerFactory.create()
    throttle(consumer)
    before = until(consumer)
    throttle(consumer, timedelta(seconds=1))
    assert until(consumer) == before
    throttle(consumer, 2 * MINUTE)
    assert until(consumer) > before + MINUTE / 2


def test_a_row_that_was_read_before_the_throttle_does_not_end_it() -> None:
    consumer = ConsumerFactory.create()
    stale = Consumer.objects.get()
    throttle(consumer)
    before = until(consumer)
    stale.title = "another"
    stale.save()
    assert (until(consumer), Consumer.objects.get().title) == (before, "another")
    operating.pause(stale, timezone.now() + MINUTE)
    assert until(consumer) == before


def test_an_operator_who_ends_a_pause_ends_the_throttle() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 3)
    throttle(consumer)
    operating.pause(consumer, None)
    assert len(Puller(USING, consumer).claim(3).jobs) == 3


def test_a_pause_goes_before_a_throttle_and_the_later_end_counts() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 3)
    throttle(consumer)
    operating.pause(consumer, timezone.now() + MINUTE / 2)
    claim = Puller(USING, consumer).claim(3)
    assert claim.refusal is Refusal.PAUSED
    assert claim.next_due is not None
    assert MINUTE - LONG < claim.next_due <= MINUTE


@committed
def test_a_throttle_waits_for_a_limited_claim_and_counts_from_the_request() -> None:
    consumer = ConsumerFactory.create(rate="100/s")
    with session() as other:
        run(other, "lock_consumer", {"consumer_id": consumer.pk})
        throttling = Thread(lambda: throttle(consumer))
        wait_until(lambda: blocked_by(other))
        assert Consumer.objects.get().throttled_until is None
        other.commit()
        throttling.result()
    assert until(consumer) <= timezone.now() + MINUTE


@committed
def test_a_throttle_wakes_the_waiters_so_that_they_learn_of_it(listener: Listener) -> None:
    consumer = ConsumerFactory.create()
    listen.wait(USING, [consumer.pk], uuid4(), MINUTE)
    throttle(consumer)
    assert listener.receive(LONG) == {consumer.pk}


@pytest.fixture
def listener() -> Iterator[Listener]:
    if behind_pooler(USING):
        pytest.skip("LISTEN needs a connection of its own")
    with closing(Listener(USING)) as opened:
        yield opened
