"""Tests of the verbs that create, change, pause and delete schedules."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import transaction
from django.test import override_settings

from pulljobs import schedules
from pulljobs.errors import (
    InvalidMessage,
    InvalidSchedule,
    PayloadTooLarge,
    ScheduleExists,
    UnknownChannel,
    UnknownSchedule,
)
from pulljobs.models import Channel, Consumer, Message, Producer
from pulljobs.schedules import editing
from pulljobs.schedules.firing import fire_due
from pulljobs.schedules.history import forget_slots
from pulljobs.schedules.models import Schedule, Slot
from tests.factories import USING, ConsumerFactory
from tests.schedules.conftest import Make, make_due, message_ids, now, reasons, recorded, reread
from tests.sessions import query

pytestmark = [pytest.mark.django_db, pytest.mark.storage]
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NEW_YEAR = datetime(2100, 1, 1, tzinfo=UTC)


def test_a_schedule_begins_with_the_first_slot_after_its_creation(make: Make) -> None:
    row = reread(make(timezone="Europe/Berlin"))
    assert row.next_slot is not None
    assert timedelta() < row.next_slot - row.rule_since <= MINUTE
    assert row.due_at == row.next_slot
    assert bytes(row.payload) == b'{"name": "each-minute"}'
    assert row.content_type == "application/json"


def test_an_interval_begins_at_the_creation(make: Make) -> None:
    row = reread(make(every=HOUR))
    assert row.starts_at is not None
    assert row.next_slot == row.starts_at + HOUR


def test_a_schedule_made_in_a_transaction_that_rolls_back_leaves_nothing(make: Make) -> None:
    with transaction.atomic():
        for tenant in range(3):
            make(f"tenant-{tenant}")
        transaction.set_rollback(True)
    assert not Schedule.objects.exists()


def test_a_producer_that_is_not_saved_is_refused(make: Make) -> None:
    with pytest.raises(InvalidMessage, match="Producer 'shop' is not in the database: save it"):
        make(producer=Producer(name="shop"))


def test_a_producer_that_was_deleted_is_refused(make: Make) -> None:
    producer = Producer.objects.create(name="shop")
    Producer.objects.all().delete()
    producer.pk = 1
    with pytest.raises(InvalidSchedule, match="Producer 'shop' was deleted: choose another one"):
        make(producer=producer)
    make("daily")
    with pytest.raises(InvalidSchedule, match="Producer 'shop' was deleted: choose another one"):
        schedules.update("daily", producer=producer)


def test_names_are_unique(make: Make) -> None:
    make("daily")
    with pytest.raises(ScheduleExists, match="There is a schedule 'daily' already"):
        make("daily")
    make("weekly")
    with pytest.raises(ScheduleExists):
        schedules.update("weekly", name="daily")


@pytest.mark.parametrize(
    ("options", "error", "advice"),
    [
        ({"cron": "61 * * * *"}, InvalidSchedule, r"field 1 \(minute\)"),
        ({"cron": "* * * * *", "timezone": "Berlin"}, InvalidSchedule, "Europe/Berlin"),
        ({"every": timedelta(milliseconds=10)}, InvalidSchedule, "choose at least 1 s"),
        ({"cron": "* * * * *", "missed": "never"}, InvalidSchedule, "one of skip, latest, all"),
        ({"cron": "* * * * *", "overlap": "no"}, InvalidSchedule, "one of allow, skip"),
        ({"cron": "* * * * *", "missed_bound": 0}, InvalidSchedule, "from 1 to 1000"),
        ({"cron": "* * * * *", "misfire_grace": 5}, InvalidSchedule, "must be a timedelta"),
        (
            {"cron": "* * * * *", "misfire_grace": timedelta(0)},
            InvalidSchedule,
            "misfire_grace is 0:00:00: choose at least 1 s",
        ),
        ({"cron": "* * * * *", "mised": "all"}, InvalidSchedule, "try 'missed'"),
        ({"cron": "* * * * *", "priority": "high"}, InvalidMessage, "priority"),
        ({"cron": "* * * * *", "producer": 1}, InvalidMessage, "must be a Producer"),
        ({"cron": "* * * * *", "channel": "nowhere"}, UnknownChannel, "nowhere"),
        ({"cron": "* * * * *", "channel": "a\x00b"}, UnknownChannel, "no channel"),
        ({"cron": "* * * * *", "payload": b"x" * 10**8}, PayloadTooLarge, "limit"),
        ({"cron": "* * * * *", "headers": {"a": 1}}, InvalidMessage, "headers"),
        ({"cron": "* * * * *", "channel": "a\ud800"}, UnknownChannel, "no channel"),
        ({"cron": "* * * * *", "missed_bound": True}, InvalidSchedule, "a whole number"),
        (
            {"every": HOUR, "starts_at": NEW_YEAR + DAY, "ends_at": NEW_YEAR},
            InvalidSchedule,
            "later end",
        ),
    ],
)
def test_options_that_cannot_work_are_refused_and_nothing_is_written(
    consumer: Consumer, options: dict[str, object], error: type[Exception], advice: str
) -> None:
    arguments = {"channel": consumer.channel.name, **options}
    with pytest.raises(error, match=advice):
        schedules.create("bad", **arguments)  # type: ignore[arg-type]
    assert not Schedule.objects.exists()


def test_a_schedule_may_begin_with_a_pause(make: Make) -> None:
    end = now() + HOUR
    assert reread(make(paused_until=end)).due_at == end
    with pytest.raises(InvalidSchedule, match="must end in the future"):
        make("late", paused_until=end - DAY)
    assert Schedule.objects.count() == 1


def test_an_option_that_is_none_is_as_absent(make: Make) -> None:
    row = make(every=HOUR, cron=None, jitter=None, headers=None)
    assert (row.cron, row.jitter, row.headers) == ("", timedelta(), {})


@pytest.mark.parametrize("name", [None, 7, "a\x00", "a\ud800"])
def test_what_is_no_name_names_no_schedule(name: str) -> None:
    for verb in (schedules.update, schedules.pause, schedules.fire_now, schedules.delete):
        with pytest.raises(UnknownSchedule):
            verb(name)


@pytest.mark.parametrize("name", ["", "a/b", "x" * 201, "a\x00", "two\nlines", "..", 7])
def test_names_that_urls_or_message_ids_cannot_have_are_refused(make: Make, name: str) -> None:
    with pytest.raises(InvalidSchedule, match="1 to 200 printable characters"):
        make(name)


def test_the_longest_name_fits_into_a_message_id(make: Make) -> None:
    row = make("x" * 200, every=timedelta(seconds=1.5))
    make_due(row)
    fire_due()
    assert reasons(row)[0] == "due"


def test_a_changed_rule_counts_from_now_on(make: Make) -> None:
    row = make(every=HOUR)
    changed = reread(schedules.update("each-minute", cron="0 6 * * *", timezone="Europe/Berlin"))
    assert (changed.cron, changed.every) == ("0 6 * * *", None)
    assert changed.rule_since > row.rule_since
    assert changed.next_slot is not None
    assert changed.next_slot.astimezone(changed.rule.zone).hour == 6
    assert changed.due_at == changed.next_slot


def test_due_slots_of_a_changed_rule_are_recorded_as_changed(make: Make) -> None:
    row = make()
    slots = make_due(row, 5)
    schedules.update("each-minute", cron="0 6 * * *")
    assert recorded(row)[:5] == slots
    assert set(reasons(row)) == {"changed"}
    fire_due()
    assert message_ids(row) == []


def test_a_rule_with_too_many_slots_without_a_record_keeps_its_rule(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(editing, "MOST_LEFT", 4)
    row = make()
    make_due(row, 5)
    with pytest.raises(InvalidSchedule, match="More than 4 slots have no record"):
        schedules.update("each-minute", cron="0 6 * * *")
    assert (reread(row).cron, reasons(row)) == ("* * * * *", [])
    schedules.update("each-minute", priority=3)
    fire_due()
    schedules.update("each-minute", cron="0 6 * * *")


@pytest.mark.parametrize("same", [{"cron": " *  * * * * "}, {"jitter": None}])
def test_a_rule_that_is_written_in_another_way_is_no_change(make: Make, same: Any) -> None:
    row = make()
    [due] = make_due(row)
    schedules.update(row.name, **same)
    assert reread(row).next_slot == due
    assert reasons(row) == []


def test_other_options_keep_the_next_slot(make: Make) -> None:
    row = make()
    [slot] = make_due(row)
    schedules.update("each-minute", payload="new", priority=7, missed="skip")
    changed = reread(row)
    assert changed.next_slot == slot
    assert (bytes(changed.payload), changed.content_type) == (b"new", "text/plain; charset=utf-8")
    assert (changed.priority, changed.missed) == (7, "skip")


def test_a_clock_that_was_set_back_fires_no_slot_of_a_changed_rule_again(make: Make) -> None:
    row = make()
    ahead = now() + 3 * HOUR
    # The next slot as well: else one that comes at this moment is recorded after the last one.
    query(
        "UPDATE pulljobs_schedule SET last_slot = %s, next_slot = %s, due_at = %s",
        [ahead, ahead + MINUTE, ahead + MINUTE],
    )
    schedules.update("each-minute", cron="*/2 * * * *")
    changed = reread(row)
    assert changed.next_slot is not None
    assert changed.next_slot > changed.rule_since >= ahead


def test_an_update_ends_the_pause_after_a_refusal(make: Make) -> None:
    row = make()
    query("UPDATE pulljobs_schedule SET failures = 5, error = 'no', due_at = now() + '1 hour'")
    schedules.update("each-minute", payload="new")
    changed = reread(row)
    assert (changed.failures, changed.error) == (0, "")
    assert changed.due_at == changed.next_slot


def test_a_pause_can_be_prolonged_and_ended(make: Make) -> None:
    row = make()
    paused = reread(schedules.pause("each-minute"))
    assert paused.due_at is None
    assert paused.is_paused(now())
    prolonged = reread(schedules.pause("each-minute", now() + HOUR))
    assert prolonged.paused_at == paused.paused_at
    assert prolonged.due_at == prolonged.paused_until
    resumed = reread(schedules.resume("each-minute"))
    assert not resumed.is_paused(now())
    assert resumed.due_at == row.next_slot


def test_a_pause_must_end_in_the_future(make: Make) -> None:
    make()
    with pytest.raises(InvalidSchedule, match="must end in the future"):
        schedules.pause("each-minute", now() - HOUR)
    with pytest.raises(ValueError, match="aware"):
        schedules.pause("each-minute", datetime(2099, 1, 1))  # noqa: DTZ001


@pytest.mark.parametrize("name", ["nothing", "nul\x00"])
def test_an_unknown_schedule_is_named(name: str) -> None:
    for verb in (
        schedules.delete,
        schedules.pause,
        schedules.resume,
        schedules.update,
        schedules.fire_now,
    ):
        with pytest.raises(UnknownSchedule, match="There is no schedule"):
            verb(name)


def test_the_history_of_a_deleted_schedule_stays(make: Make) -> None:
    row = make()
    make_due(row)
    fire_due()
    schedules.delete("each-minute")
    assert not Schedule.objects.exists()
    assert Slot.objects.filter(schedule_id=row.pk).exists()
    make()


def test_fire_now_publishes_at_once_even_during_a_pause(make: Make) -> None:
    row = make()
    schedules.pause("each-minute")
    slot = schedules.fire_now("each-minute")
    assert (slot.reason, slot.slot_at <= now()) == ("now", True)
    message = Message.objects.get(pk=slot.message_id or 0)
    assert message.headers["Pulljobs-Schedule"] == "each-minute"
    schedules.fire_now("each-minute")
    assert reasons(row) == ["now", "now"]
    assert reread(row).next_slot == row.next_slot


def test_a_backfill_fires_each_past_slot_of_its_window_once(make: Make) -> None:
    row = make()
    end = now().replace(second=0, microsecond=0) - HOUR
    slots = schedules.backfill("each-minute", end - 5 * MINUTE, end)
    expected = [end - count * MINUTE for count in (5, 4, 3, 2, 1)]
    assert [slot.slot_at.astimezone(UTC) for slot in slots] == expected
    assert {slot.reason for slot in slots} == {"backfill"}
    assert schedules.backfill("each-minute", end - 5 * MINUTE, end) == []
    assert len(message_ids(row)) == 5


def test_a_backfill_replaces_the_records_of_skipped_slots_only(make: Make) -> None:
    row = make()
    slots = make_due(row, 4)
    fire_due()
    schedules.backfill("each-minute", slots[1], slots[-1] + MINUTE)
    assert reasons(row)[:4] == ["missed", "backfill", "backfill", "due"]


def test_a_backfill_leaves_slots_to_come_alone(make: Make) -> None:
    row = make()
    slots = make_due(row, 3)
    assert schedules.backfill("each-minute", slots[0], now() + HOUR) == []
    assert reread(row).next_slot == slots[0]


def test_slots_whose_records_may_be_deleted_are_not_fired_again(make: Make) -> None:
    row = make(every=HOUR, starts_at=now() - 30 * DAY)
    Schedule.objects.update(created_at=now() - 30 * DAY)
    with override_settings(PULLJOBS={"RETENTION": 7 * DAY}):
        with pytest.raises(InvalidSchedule, match="may be deleted") as refused:
            schedules.backfill(row.name, now() - 8 * DAY, now() - 7 * DAY + HOUR)
        assert refused.value.field == "start"
        fired = schedules.backfill(row.name, now() - 7 * DAY + HOUR / 2, now() - 6 * DAY)
    assert len(fired) in (23, 24)


def test_slots_before_a_schedule_was_created_can_be_backfilled_at_any_age(make: Make) -> None:
    row = make(every=HOUR, starts_at=now() - 30 * DAY)
    with override_settings(PULLJOBS={"RETENTION": DAY}):
        assert len(schedules.backfill(row.name, now() - 9 * DAY, now() - 8 * DAY)) in (23, 24, 25)


def test_records_of_a_backfill_stay_as_long_as_others(make: Make) -> None:
    row = make(every=HOUR, starts_at=now() - 30 * DAY)
    begin, end = now() - 9 * DAY, now() - 8 * DAY
    filled = schedules.backfill(row.name, begin, end)
    assert forget_slots(USING, DAY) == 0
    assert schedules.backfill(row.name, begin, end) == []
    query("UPDATE pulljobs_slot SET recorded_at = now() - interval '2 days'")
    assert forget_slots(USING, 8 * DAY) == 0
    assert forget_slots(USING, DAY) == len(filled)
    assert reasons(row) == []


@pytest.mark.parametrize("length", [timedelta(), -HOUR])
def test_a_window_that_ends_before_it_begins_is_refused(make: Make, length: timedelta) -> None:
    row = make()
    start = now() - DAY
    with pytest.raises(InvalidSchedule, match="Choose an end after the start") as refused:
        schedules.backfill(row.name, start, start + length)
    assert refused.value.field == "end"


def test_a_declared_schedule_can_be_changed_but_not_renamed(make: Make) -> None:
    row = make()
    query("UPDATE pulljobs_schedule SET is_declared = true")
    assert schedules.update(row.name, priority=3).priority == 3
    with pytest.raises(InvalidSchedule, match="rename it in the code") as refused:
        schedules.update(row.name, name="other")
    assert refused.value.field == "name"


def test_a_time_zone_that_this_machine_does_not_know_can_be_replaced(make: Make) -> None:
    row = make()
    [slot, *_others] = make_due(row, 3)
    query("UPDATE pulljobs_schedule SET timezone = 'Mars/Base'")
    with pytest.raises(InvalidSchedule, match="does not know the time zone 'Mars/Base'"):
        schedules.backfill(row.name, slot - HOUR, slot)
    schedules.pause(row.name)
    schedules.resume(row.name)
    schedules.update(row.name, timezone="UTC")
    assert (recorded(row), reasons(row)) == ([slot], ["changed"])
    assert reread(row).next_slot == reread(row).due_at


def test_a_large_backfill_says_where_to_cut(make: Make) -> None:
    make(every=timedelta(seconds=1), starts_at=now() - 2 * HOUR)
    with pytest.raises(InvalidSchedule, match="more than 1,000 slots: backfill up to 20"):
        schedules.backfill("each-minute", now() - HOUR, now())


def test_a_refused_publish_of_a_backfill_changes_nothing(make: Make) -> None:
    row = make()
    Channel.objects.all().update(name="renamed")
    end = now()
    with pytest.raises(UnknownChannel), transaction.atomic():
        schedules.backfill("each-minute", end - 10 * MINUTE, end - 5 * MINUTE)
    assert reasons(row) == []


def test_schedules_of_different_channels_live_side_by_side(make: Make) -> None:
    other = ConsumerFactory.create().channel.name
    make("here")
    make("there", channel=other)
    for row in Schedule.objects.all():
        make_due(row)
    fire_due()
    channels = set(Message.objects.values_list("channel__name", flat=True))
    assert other in channels
    assert len(channels) == 2
