"""Tests of firing: which slots fire, what is recorded, and what one schedule does to others."""

import time
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext

from pulljobs import publishing, schedules
from pulljobs.engine.validation import NewMessage
from pulljobs.models import Channel, Consumer, Job, Message
from pulljobs.publishing import publish
from pulljobs.schedules import firing
from pulljobs.schedules.firing import fire_batch, fire_due
from pulljobs.schedules.models import Schedule, Slot
from pulljobs.schedules.planning import PASS_SLOTS
from pulljobs.schedules.rules import format_slot
from pulljobs.storage import sessions
from tests.factories import USING, ConsumerFactory
from tests.schedules.conftest import (
    Make,
    make_due,
    message_ids,
    now,
    reasons,
    recorded,
    reread,
)
from tests.sessions import SLACK, Thread, query, session

pytestmark = [pytest.mark.django_db, pytest.mark.storage]
MINUTE = timedelta(minutes=1)


def test_a_due_slot_fires_once_with_its_message_record_and_next_slot(make: Make) -> None:
    row = make(headers={"kind": "test"}, priority=3, key="a", cost=5)
    [slot] = make_due(row)
    assert fire_due() == 1
    assert fire_batch() is None
    record = Slot.objects.get(schedule_id=row.pk)
    message = Message.objects.get(pk=record.message_id or 0)
    assert (record.slot_at, record.reason) == (slot, "due")
    assert 0 <= record.late_seconds < 120
    assert message.client_message_id == f"each-minute:{format_slot(slot)}"
    assert message.headers == {
        "kind": "test",
        "Pulljobs-Schedule": "each-minute",
        "Pulljobs-Slot": format_slot(slot),
    }
    assert (message.priority, message.key) == (3, "a")
    assert Job.objects.get(message_id=message.pk).cost == 5
    row = reread(row)
    assert (row.last_slot, row.last_reason, row.last_message_id) == (slot, "due", message.pk)
    assert row.next_slot == slot + MINUTE
    assert row.due_at == row.next_slot


def test_a_handler_reads_the_slot_from_its_job(make: Make) -> None:
    [slot] = make_due(make())
    fire_due()
    message = Message.objects.get()
    assert schedules.slot_of(message) == slot
    for other in ({}, {"Pulljobs-Slot": "soon"}, {"Pulljobs-Slot": "2026-11-23"}):
        message.headers = other
        assert schedules.slot_of(message) is None


def test_a_schedule_that_is_not_due_stays_as_it_is(make: Make) -> None:
    row = make(every=timedelta(hours=1))
    assert fire_batch() is None
    assert reread(row).next_slot == row.next_slot
    assert reasons(row) == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"missed": "latest"}, ["missed"] * 9 + ["due"]),
        ({"missed": "skip", "misfire_grace": timedelta(0)}, ["missed"] * 9 + ["late"]),
        ({"missed": "skip", "misfire_grace": 2 * MINUTE}, ["missed"] * 9 + ["due"]),
        ({"missed": "all"}, ["due"] * 10),
        ({"missed": "all", "missed_bound": 4}, ["missed"] * 6 + ["due"] * 4),
        ({"missed": "all", "misfire_grace": 3 * MINUTE}, ["late"] * 7 + ["due"] * 3),
        ({"missed": "latest", "misfire_grace": timedelta(0)}, ["missed"] * 9 + ["late"]),
    ],
)
def test_ten_missed_slots_are_treated_as_the_policy_says(
    make: Make, options: dict[str, object], expected: list[str]
) -> None:
    row = make()
    Schedule.objects.filter(pk=row.pk).update(**options)
    slots = make_due(row, 10)
    fire_due()
    assert recorded(row)[:10] == slots
    assert reasons(row)[:10] == expected
    fired = [slot for slot, reason in zip(slots, expected, strict=True) if reason == "due"]
    assert message_ids(row)[: len(fired)] == [f"each-minute:{format_slot(slot)}" for slot in fired]


def test_skip_fires_a_slot_that_is_hardly_late(make: Make) -> None:
    row = make(every=timedelta(seconds=2), missed="skip")
    make_due(row, 5)
    fire_due()
    assert reasons(row)[:4] == ["missed"] * 4
    assert reasons(row)[4] == "due"


def test_skip_skips_a_slot_that_passed_while_nothing_ran(make: Make) -> None:
    row = make(every=timedelta(hours=1), starts_at=now() - 30 * MINUTE, missed="skip")
    make_due(row)
    fire_due()
    assert reasons(row) == ["missed"]


def test_a_long_outage_is_recorded_in_several_passes(make: Make) -> None:
    row = make(every=timedelta(seconds=1), missed="all", missed_bound=3)
    slots = make_due(row, PASS_SLOTS + 500)
    assert fire_batch() == PASS_SLOTS
    assert set(reasons(row)) == {"missed"}
    fire_due()
    assert recorded(row)[: len(slots)] == slots
    assert reasons(row).count("due") >= 3
    assert "due" not in reasons(row)[: PASS_SLOTS + 490]


def test_slots_of_a_pause_are_missed_for_that_reason(make: Make) -> None:
    row = make()
    slots = make_due(row, 10)
    query("UPDATE pulljobs_schedule SET paused_at = %s, paused_until = %s", [slots[3], slots[7]])
    fire_due()
    assert reasons(row)[:10] == ["missed"] * 3 + ["paused"] * 4 + ["missed"] * 2 + ["due"]
    assert reread(row).paused_at is None


def test_slots_of_two_pauses_without_a_pass_between_them_keep_their_reasons(make: Make) -> None:
    row = make()
    slots = make_due(row, 10)
    query("UPDATE pulljobs_schedule SET paused_at = %s, paused_until = %s", [slots[1], slots[3]])
    schedules.pause(row.name)
    query("UPDATE pulljobs_schedule SET paused_at = %s, paused_until = %s", [slots[5], slots[7]])
    schedules.pause(row.name)
    query("UPDATE pulljobs_schedule SET paused_at = %s", [slots[9] - MINUTE / 2])
    schedules.resume(row.name)
    fire_due()
    missed, paused = ["missed"], ["paused"]
    between = missed + paused * 2 + missed * 2 + paused * 2 + missed * 2
    assert reasons(row)[:9] == between
    assert "due" not in reasons(row)[:9]
    assert (reread(row).earlier_pauses, reread(row).paused_at) == (None, None)


def test_a_pause_without_slots_is_not_kept(make: Make) -> None:
    row = make(every=timedelta(hours=1))
    for _ in range(3):
        schedules.pause(row.name)
        schedules.resume(row.name)
    assert reread(row).earlier_pauses is None


def test_no_slot_fires_while_a_schedule_is_paused(make: Make) -> None:
    row = make()
    make_due(row)
    schedules.pause("each-minute")
    assert fire_batch() is None
    schedules.resume("each-minute")
    assert fire_due() == 1


def test_a_pause_with_an_end_ends_by_itself(make: Make) -> None:
    row = make(every=timedelta(hours=1))
    schedules.pause("each-minute", now() + MINUTE)
    assert reread(row).due_at == row.next_slot
    query("UPDATE pulljobs_schedule SET paused_until = now() - interval '1 s', due_at = now()")
    assert fire_batch() == 0
    row = reread(row)
    assert (row.paused_at, row.due_at) == (None, row.next_slot)


def test_a_slot_is_skipped_while_a_job_of_the_previous_message_is_live(make: Make) -> None:
    row = make(overlap="skip")
    make_due(row)
    fire_due()
    make_due(row)
    query("DELETE FROM pulljobs_slot")
    fire_due()
    assert reasons(row) == ["overlap"]
    query("DELETE FROM pulljobs_slot")
    query("DELETE FROM pulljobs_job")
    query("DELETE FROM pulljobs_publication")
    make_due(row)
    fire_due()
    assert reasons(row) == ["due"]


def test_only_the_first_of_several_slots_fires_where_jobs_must_not_overlap(make: Make) -> None:
    row = make(overlap="skip", missed="all")
    make_due(row, 4)
    fire_due()
    assert reasons(row)[:4] == ["due"] + ["overlap"] * 3


def test_slots_may_overlap_by_default(make: Make) -> None:
    row = make(missed="all")
    make_due(row, 3)
    fire_due()
    assert reasons(row)[:3] == ["due"] * 3


def test_a_refused_publish_blocks_no_other_schedule_and_is_tried_again(make: Make) -> None:
    lost, good = make("lost", channel=ConsumerFactory.create().channel.name), make("good")
    [slot] = make_due(lost)
    make_due(good)
    name = lost.channel_name
    Channel.objects.filter(name=name).update(name="away")
    fire_due()
    assert reasons(good) == ["due"]
    assert reasons(lost) == []
    row = reread(lost)
    assert (row.next_slot, row.failures) == (slot, 1)
    assert f"There is no channel {name!r}" in row.error
    assert row.due_at is not None
    assert now() - MINUTE < row.due_at < now() + 5 * timedelta(seconds=1)
    Channel.objects.filter(name="away").update(name=name)
    make_due_again(row)
    fire_due()
    row = reread(lost)
    assert reasons(lost)[-1] == "due"
    assert (row.failures, row.error) == (0, "")


@pytest.mark.django_db(transaction=True)
@pytest.mark.own_session
@pytest.mark.parametrize("is_loop", [True, False])
def test_a_lock_that_another_holds_stops_no_other_schedule(
    make: Make, consumer: Consumer, is_loop: bool
) -> None:
    """After a short wait for the lock, a worker or `schedules run` fires the other schedules."""
    Consumer.objects.filter(pk=consumer.pk).update(max_queued_per_key=5)
    rows = [make("first", key="k"), make("good", key="free"), make("second", key="k")]
    publish(consumer.channel.name, "creates the row of the key", key="k")
    for row in rows:
        make_due(row)
    with session() as other:
        other.execute("SELECT FROM pulljobs_bounded_key WHERE key = 'k' FOR UPDATE")
        began = time.monotonic()
        assert Thread(fire_as_loop if is_loop else fire_batch).result() == 1
        assert time.monotonic() - began < 2 * sessions.LOCK_SECONDS + SLACK
    assert [reread(row).failures for row in rows] == [1, 0, 1]
    assert reasons(rows[1]) == ["due"]
    for row in rows:
        make_due_again(row)
    fire_due()
    assert [reasons(row)[-1] for row in rows] == ["due"] * 3


def test_a_rule_that_this_machine_cannot_evaluate_stops_no_other_schedule(make: Make) -> None:
    bad, good = make("bad"), make("good")
    [slot] = make_due(bad)
    make_due(good)
    query("UPDATE pulljobs_schedule SET timezone = 'Mars/Base' WHERE id = %s", [bad.pk])
    fire_due()
    assert reasons(good)[-1] == "due"
    row = reread(bad)
    assert (reasons(bad), row.next_slot, row.failures) == ([], slot, 1)
    assert "Mars/Base" in row.error
    query("UPDATE pulljobs_schedule SET timezone = 'UTC'")
    make_due_again(row)
    fire_due()
    assert reasons(bad)[-1] == "due"


def test_a_batch_with_many_slots_leaves_other_schedules_to_the_next(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(firing, "BATCH_SLOTS", 5)
    for name in ("first", "second", "third"):
        make_due(make(name, cron="0 * * * *"), 4)
    assert [fire_batch() for _ in range(3)] == [8, 4, None]


def test_large_payloads_are_published_in_several_statements(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    store = publishing._store

    def note(channel: str, batch: list[NewMessage], *options: Any, **named: Any) -> Any:
        sizes.append(len(batch))
        return store(channel, batch, *options, **named)

    monkeypatch.setattr(publishing, "_store", note)
    monkeypatch.setattr(publishing, "BATCH_BYTES", 100)
    for number in range(5):
        make_due(make(f"tenant-{number}", cron="0 * * * *", payload=b"x" * 40))
    assert fire_batch() == 5
    assert sizes == [2, 2, 1]
    assert Message.objects.count() == 5


def test_a_slot_that_stays_refused_is_recorded_when_the_next_one_is_due(make: Make) -> None:
    row = make()
    slots = make_due(row, 2)
    query(
        "UPDATE pulljobs_schedule SET failures = 3, error = 'There was no channel', last_slot = %s",
        [slots[0] - MINUTE],
    )
    fire_due()
    record = Slot.objects.get(schedule_id=row.pk, slot_at=slots[0])
    assert (record.reason, record.error) == ("refused", "There was no channel")
    assert reasons(row)[1] == "due"


def test_a_refused_slot_is_given_up_after_its_grace(make: Make) -> None:
    row = make()
    [slot] = make_due(row)
    query("UPDATE pulljobs_schedule SET failures = 1, error = 'no', misfire_grace = '0'")
    fire_due()
    assert Slot.objects.get(slot_at=slot).reason == "refused"
    assert reread(row).failures == 0


def test_no_slot_is_left_out_after_a_refused_one(make: Make, consumer: Consumer) -> None:
    row = make(missed="all", key="k")
    Consumer.objects.filter(pk=consumer.pk).update(max_queued_per_key=2, key_overflow="refuse")
    slots = make_due(row, 4)
    fire_batch()
    assert recorded(row) == slots[:2]
    assert reread(row).next_slot == slots[2]
    assert "takes no more jobs" in reread(row).error


def test_a_slot_that_was_published_before_counts_as_fired_by_that_message(make: Make) -> None:
    row = make()
    make_due(row)
    fire_due()
    first = Slot.objects.get()
    query("DELETE FROM pulljobs_slot")
    make_due(row)
    fire_due()
    assert Slot.objects.get(slot_at=first.slot_at).message_id == first.message_id
    assert message_ids(row).count(f"each-minute:{format_slot(first.slot_at)}") == 1


def test_jitter_delays_a_slot_but_not_its_name(make: Make) -> None:
    row = make(every=timedelta(hours=2), starts_at=now() - 3 * 60 * MINUTE, jitter=30 * MINUTE)
    [slot] = make_due(row)
    fire_due()
    record = Slot.objects.get()
    assert record.slot_at == slot
    late = (record.recorded_at - row.rule.fires_at(slot, row.name)).total_seconds()
    assert record.late_seconds == pytest.approx(late, abs=0.001)
    row = reread(row)
    assert row.next_slot is not None
    assert row.due_at is not None
    assert timedelta() < row.due_at - row.next_slot < 30 * MINUTE


def test_the_last_slot_of_a_rule_ends_its_schedule(make: Make) -> None:
    row = make(ends_at=now() + 2 * MINUTE)
    query("UPDATE pulljobs_schedule SET ends_at = date_trunc('minute', now())")
    make_due(row)
    fire_due()
    row = reread(row)
    assert (row.next_slot, row.due_at) == (None, None)
    assert fire_batch() is None


def test_a_crash_before_the_commit_leaves_the_slot_to_another_worker(make: Make) -> None:
    row = make()
    make_due(row)
    with transaction.atomic():
        assert fire_batch() == 1
        transaction.set_rollback(True)
    assert (reasons(row), message_ids(row)) == ([], [])
    assert fire_batch() == 1


def test_hundreds_of_schedules_fire_in_few_statements(make: Make) -> None:
    for number in range(150):
        make(f"tenant-{number}", cron="0 3 * * *")  # no second slot becomes due meanwhile
    for row in Schedule.objects.all():
        make_due(row)
    with CaptureQueriesContext(connection) as queries:
        assert fire_batch() == 150
    assert len(queries) <= 10
    assert Message.objects.count() == 150


def make_due_again(row: Schedule) -> None:
    query("UPDATE pulljobs_schedule SET due_at = now() WHERE id = %s", [row.pk])


def fire_as_loop() -> int | None:
    """Call `fire_batch` on a connection of a worker's loop, where waits for locks are short."""
    sessions.dedicate(USING)
    return fire_batch()
