"""Scheduled messages are published at their time, also next to other publishers."""

from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import OperationalError
from django.db.models.functions import Now
from django.utils import timezone

from pulljobs import scheduling
from pulljobs.errors import DuplicateSchedule
from pulljobs.models import Channel, Message, ScheduledMessage
from pulljobs.publishing import publish
from pulljobs.storage import scheduled, sessions
from tests.factories import USING, ConsumerFactory
from tests.sessions import Thread, blocked_by, lock_timeout, query, run, session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
LATER = timedelta(hours=1)

LOSE_ONCE = """
CREATE SEQUENCE tries;
CREATE FUNCTION lose_once() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF nextval('tries') = 1 THEN
        RAISE EXCEPTION USING ERRCODE = 'deadlock_detected';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER lose_once BEFORE INSERT ON pulljobs_job FOR EACH ROW EXECUTE FUNCTION lose_once()
"""
FORGET = "DROP FUNCTION lose_once CASCADE; DROP SEQUENCE tries"


@pytest.fixture
def _one_try_is_lost() -> Iterator[None]:
    query(LOSE_ONCE)
    yield
    query(FORGET)


def due(channel: Channel, *keys: str, message_id: str | None = None) -> None:
    """Schedule a message for each key, in this order, all of which are due already."""
    for key in keys:
        row = scheduling.schedule(
            channel, key, timezone.now() + LATER, key=key, message_id=message_id
        )
        # A while ago, because the clock of a virtual machine is set back now and then.
        ScheduledMessage.objects.filter(pk=row.pk).update(dispatch_at=Now() - LATER)


def published_texts() -> list[str]:
    payloads = Message.objects.order_by("id").values_list("payload", flat=True)
    return [bytes(payload).decode() for payload in payloads]


def test_keys_are_locked_in_the_order_of_all_who_publish_several() -> None:
    """A dispatch locks keys in sorted order, but publishes messages in the order of their times."""
    channel = ConsumerFactory.create(max_queued_per_key=9).channel
    due(channel, "b", "B", "a")
    lock = {"channel": channel.name, "only_consumer_id": None}
    with lock_timeout(), session() as other:
        run(other, "lock_bounded_keys", lock | {"keys": "{B}"})
        dispatching = Thread(scheduling.dispatch)
        wait_until(lambda: blocked_by(other))
        other.execute("SET LOCAL lock_timeout = '10ms'")
        run(other, "lock_bounded_keys", lock | {"keys": "{a}"})
        run(other, "lock_bounded_keys", lock | {"keys": "{b}"})
        other.commit()
        assert dispatching.result() == 3
    assert published_texts() == ["b", "B", "a"]


def test_a_message_waits_for_a_limited_time_for_an_open_one_of_its_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    channel = ConsumerFactory.create().channel
    due(channel, "a", message_id="m")
    monkeypatch.setattr(scheduled, "LONGEST_SECONDS", 0.1)
    with lock_timeout("9s"), session() as other:
        other.execute("UPDATE pulljobs_scheduled_message SET client_message_id = 'n'")
        with pytest.raises(OperationalError, match="due to user request"):
            due(channel, "b", message_id="n")
    due(channel, "b", message_id="n")
    with pytest.raises(DuplicateSchedule):
        due(channel, "b", message_id="n")


@pytest.mark.own_session
def test_a_key_that_stays_locked_delays_only_its_own_messages() -> None:
    """Other keys are dispatched while the open transaction of a publisher has one key locked."""
    channel = ConsumerFactory.create(max_queued_per_key=9).channel
    due(channel, "a", "b", "a", "c")

    def dispatch() -> int:
        sessions.dedicate(USING)
        return scheduling.dispatch()

    with session() as other:
        keys = {"channel": channel.name, "only_consumer_id": None, "keys": "{a}"}
        run(other, "lock_bounded_keys", keys)
        assert Thread(dispatch).result() == 2
        assert published_texts() == ["b", "c"]
    wait_until(lambda: scheduling.dispatch() > 0)
    wait_until(lambda: scheduling.dispatch() == 0 and len(published_texts()) == 4)
    assert published_texts() == ["b", "c", "a", "a"]


@pytest.mark.owner
@pytest.mark.usefixtures("_one_try_is_lost")
def test_a_batch_that_lost_a_conflict_is_tried_again() -> None:
    channel = ConsumerFactory.create().channel
    due(channel, "a")
    assert scheduling.dispatch() == 1
    assert published_texts() == ["a"]


def test_what_the_database_can_t_do_with_one_holds_up_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A scheduled message that the database refuses is tried again later. Others are published."""
    odd, sound = (ConsumerFactory.create().channel for _channel in range(2))
    Channel.objects.filter(pk=odd.pk).update(dedupe_window=timedelta.max)
    publish(odd.name, b"first", message_id="m")
    due(odd, "again", message_id="m")
    due(sound, "sound")
    assert scheduling.dispatch() == 1
    assert published_texts() == ["first", "sound"]
    [warning] = caplog.records
    assert warning.getMessage() == (
        f"A scheduled message of {odd.name} was refused and is tried again in a minute: "
        "timestamp out of range"
    )
