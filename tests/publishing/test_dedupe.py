"""A client message id is good for one message of a channel within the dedupe window."""

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.db import transaction
from django.test import override_settings

from pulljobs import operating
from pulljobs.engine import outcomes
from pulljobs.errors import DuplicateMessage
from pulljobs.models import Consumer, Job, Message, Publication
from pulljobs.publishing import Draft, Receipt, publish, publish_many
from pulljobs.storage import jobs, published
from tests.factories import USING, ChannelFactory, ConsumerFactory, claimed
from tests.sessions import Thread, at_once, blocked_by, contents, query, session, wait_until

pytestmark = pytest.mark.django_db


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


def send(consumer: Consumer, message_id: str = "order-1") -> Receipt:
    return publish(consumer.channel.name, b"x", message_id=message_id)


def age(by: timedelta) -> None:
    query("UPDATE pulljobs_publication SET published_at = published_at - %s", [by])


def test_a_second_one_is_refused_with_the_first_ones_id(consumer: Consumer) -> None:
    first = send(consumer)
    before = contents()
    with pytest.raises(DuplicateMessage) as refused:
        send(consumer)
    assert (refused.value.message_id, refused.value.first) == ("order-1", first.message_id)
    assert contents() == before


def test_other_ids_other_channels_and_no_id_are_free(consumer: Consumer) -> None:
    send(consumer)
    send(consumer, "order-2")
    send(ConsumerFactory.create())
    publish(consumer.channel.name, b"x")
    publish(consumer.channel.name, b"x")
    assert Message.objects.count() == 5


def send_among_others(consumer: Consumer) -> Receipt:
    drafts = [Draft(payload=b"x", message_id=id) for id in (None, "order-1")]
    return publish_many(consumer.channel.name, drafts)[1]


def test_the_window_is_the_same_for_many(consumer: Consumer) -> None:
    first = send_among_others(consumer)
    age(timedelta(seconds=60))
    assert send_among_others(consumer) == Receipt(first.message_id, [], duplicate=True)
    age(timedelta(seconds=61))
    second = send_among_others(consumer)
    assert not second.duplicate
    assert send_among_others(consumer) == Receipt(second.message_id, [], duplicate=True)


def test_after_the_window_the_id_is_free_and_the_newest_is_found(consumer: Consumer) -> None:
    first = send(consumer)
    age(timedelta(seconds=60))
    with pytest.raises(DuplicateMessage):
        send(consumer)
    age(timedelta(seconds=61))
    second = send(consumer)
    with pytest.raises(DuplicateMessage) as refused:
        send(consumer)
    assert refused.value.first == second.message_id != first.message_id


def test_a_channel_may_have_a_window_of_its_own() -> None:
    channel = ChannelFactory.create(dedupe_window=timedelta(hours=1))
    consumer = ConsumerFactory.create(channel=channel)
    send(consumer)
    age(timedelta(minutes=59))
    with pytest.raises(DuplicateMessage):
        send(consumer)
    age(timedelta(minutes=2))
    send(consumer)


@override_settings(PULLJOBS={"DEDUPE_WINDOW": timedelta(seconds=10)})
def test_the_setting_is_for_channels_without_one(consumer: Consumer) -> None:
    send(consumer)
    age(timedelta(seconds=11))
    send(consumer)


@override_settings(PULLJOBS={"DEDUPE_WINDOW": timedelta(days=30)})
@pytest.mark.parametrize("own", [timedelta(days=30), None])
def test_what_is_pruned_earlier_than_the_window_ends_stays_taken(own: timedelta | None) -> None:
    consumer = ConsumerFactory.create(channel=ChannelFactory.create(dedupe_window=own))
    shorter = ConsumerFactory.create(channel=ChannelFactory.create(dedupe_window=timedelta(days=1)))
    first = send(consumer)
    send(shorter)
    Job.objects.all().delete()
    age(timedelta(days=10))
    list(operating.prune(timedelta(days=7)))
    with pytest.raises(DuplicateMessage) as refused:
        send(consumer)
    assert refused.value.first == first.message_id
    assert Publication.objects.get().channel_id == consumer.channel_id
    age(timedelta(days=21))
    list(operating.prune(timedelta(days=7)))
    assert not Publication.objects.exists()


def test_the_id_of_a_message_with_a_live_job_is_not_pruned(consumer: Consumer) -> None:
    """Pruning keeps the client message id of a message with a live job, as answers show it."""
    first = send(consumer)
    age(timedelta(days=10))
    list(operating.prune(timedelta(days=7)))
    message = published.find(USING, consumer.channel_id, "order-1")
    assert message is not None
    assert message.pk == first.message_id
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer)])
    list(operating.prune(timedelta(days=7)))
    assert not Publication.objects.exists()


@pytest.mark.parametrize("settle", [outcomes.deliver, lambda held: outcomes.reject(held, "bad")])
def test_a_settled_or_deleted_job_does_not_free_the_id(consumer: Consumer, settle: object) -> None:
    first = send(consumer)
    jobs.finish(USING, [settle(held) for held in claimed(consumer)])  # type: ignore[operator]  # a way to settle
    jobs.delete(USING, first.job_ids)
    assert not Job.objects.exists()
    with pytest.raises(DuplicateMessage) as refused:
        send(consumer)
    assert refused.value.first == first.message_id


def test_duplicates_in_a_batch_are_receipts(consumer: Consumer) -> None:
    earlier = send(consumer, "a")
    drafts = [Draft(payload=n, message_id=id) for n, id in enumerate("abcb")]
    receipts = publish_many(consumer.channel.name, [*drafts, Draft(payload=9)])
    assert receipts[0] == Receipt(earlier.message_id, [], duplicate=True)
    assert [receipt.duplicate for receipt in receipts] == [True, False, False, True, False]
    assert receipts[3] == Receipt(receipts[1].message_id, [], duplicate=True)
    assert query("SELECT convert_from(payload, 'UTF8') FROM pulljobs_message ORDER BY 1") == [
        ("1",),
        ("2",),
        ("9",),
        ("x",),
    ]


def test_duplicates_in_different_batches_of_one_call(consumer: Consumer) -> None:
    drafts = [Draft(payload=n, message_id=str(n % 1_100)) for n in range(2_200)]
    receipts = publish_many(consumer.channel.name, drafts)
    assert [receipt.duplicate for receipt in receipts] == [False] * 1_100 + [True] * 1_100
    assert [receipt.message_id for receipt in receipts[1_100:]] == [
        receipt.message_id for receipt in receipts[:1_100]
    ]
    assert Job.objects.count() == 1_100


@pytest.mark.django_db(transaction=True)
def test_a_second_one_waits_for_the_first_to_commit(consumer: Consumer) -> None:
    with session() as other:
        hold(other, consumer)
        second = Thread(lambda: send(consumer))
        wait_until(lambda: blocked_by(other))
        other.commit()
        with pytest.raises(DuplicateMessage) as refused:
            second.result()
    assert refused.value.first == 77


@pytest.mark.django_db(transaction=True)
def test_a_second_one_is_the_first_if_that_is_rolled_back(consumer: Consumer) -> None:
    with session() as other:
        hold(other, consumer)
        second = Thread(lambda: send(consumer))
        wait_until(lambda: blocked_by(other))
        other.rollback()
        receipt = second.result()
    assert not receipt.duplicate
    assert Message.objects.get().pk == receipt.message_id


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("way", [send, send_among_others])
def test_one_that_waits_until_the_window_is_over_is_a_duplicate(
    consumer: Consumer, way: Callable[[Consumer], Receipt]
) -> None:
    """A publish is in the window if it begins there, however long it waits for the first."""
    with session() as other:
        hold(other, consumer)
        second = Thread(lambda: way(consumer))
        wait_until(lambda: blocked_by(other))
        other.execute(
            "UPDATE pulljobs_publication SET published_at = clock_timestamp() - '2 min'::interval"
        )
        other.commit()
        if way is send:
            with pytest.raises(DuplicateMessage):
                second.result()
        else:
            assert second.result() == Receipt(77, [], duplicate=True)
    assert not Job.objects.filter(message__client_message_id="order-1").exists()


@pytest.mark.django_db(transaction=True)
def test_without_a_window_no_publish_is_a_duplicate() -> None:
    consumer = ConsumerFactory.create(channel=ChannelFactory.create(dedupe_window=timedelta(0)))
    with session() as other:
        hold(other, consumer)
        second = Thread(lambda: send(consumer))
        wait_until(lambda: blocked_by(other))
        other.execute("UPDATE pulljobs_publication SET published_at = clock_timestamp()")
        other.commit()
        assert not second.result().duplicate


def hold(other: object, consumer: Consumer) -> None:
    other.execute(  # type: ignore[attr-defined]  # a session
        "INSERT INTO pulljobs_publication VALUES (%s, 'order-1', 77, now())",
        [consumer.channel_id],
    )


@pytest.mark.django_db(transaction=True)
def test_of_fifty_at_once_one_is_published(consumer: Consumer) -> None:
    def send_many(_number: int) -> list[Receipt]:
        with transaction.atomic(USING):
            return [
                publish_many(consumer.channel.name, [Draft(payload=b"x", message_id="order-1")])[0]
                if time % 2
                else send_among_others(consumer)
                for time in range(5)
            ]

    receipts = [receipt for sent in at_once(10, send_many) for receipt in sent]
    assert sorted(receipt.duplicate for receipt in receipts) == [False] + [True] * 49
    [message] = Message.objects.exclude(client_message_id=None)
    assert {receipt.message_id for receipt in receipts} == {message.pk}
    assert Job.objects.filter(message=message).count() == 1
