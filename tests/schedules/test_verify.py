"""Tests of `verify`, which proves that each slot has one record, and each fired slot a message."""

from datetime import timedelta
from typing import Any

import pytest

from pulljobs import schedules
from pulljobs.schedules.firing import fire_due
from pulljobs.schedules.models import Slot
from pulljobs.schedules.rules import format_slot
from pulljobs.schedules.verifying import verify
from pulljobs.storage.statements import run
from tests.schedules.conftest import Make, make_due, now, recorded
from tests.sessions import query

pytestmark = [pytest.mark.django_db, pytest.mark.storage]
MINUTE = timedelta(minutes=1)
OLDEST = timedelta(minutes=20)


@pytest.fixture
def name(make: Make) -> str:
    """Return the name of a schedule that fired all its slots of the last minutes."""
    row = make(missed="all")
    slots = make_due(row, 20)
    query("UPDATE pulljobs_schedule SET rule_since = %s", [slots[0] - MINUTE / 2])
    fire_due()
    return row.name


def test_every_slot_is_accounted_for(name: str) -> None:
    result = verify()
    assert (result.broken, result.schedules) == ({}, 1)
    assert result.slots >= 20


def test_skipped_and_backfilled_slots_and_slots_by_hand_are_accounted_for(make: Make) -> None:
    row = make()
    slots = make_due(row, 20)
    query("UPDATE pulljobs_schedule SET rule_since = %s", [slots[0] - MINUTE / 2])
    fire_due()
    schedules.fire_now(row.name)
    schedules.backfill(row.name, slots[3], slots[6])
    assert verify().broken == {}


def test_a_missing_slot_is_named(name: str) -> None:
    slot = Slot.objects.order_by("slot_at")[7].slot_at
    query("DELETE FROM pulljobs_slot WHERE slot_at = %s", [slot])
    assert verify().broken == {"slot_is_recorded": [f"{name} {format_slot(slot)}"]}


@pytest.mark.owner
def test_a_doubled_record_is_named(name: str) -> None:
    slot = Slot.objects.order_by("slot_at")[7].slot_at
    query("ALTER TABLE pulljobs_slot DROP CONSTRAINT pulljobs_slot_pkey")
    query("INSERT INTO pulljobs_slot SELECT * FROM pulljobs_slot WHERE slot_at = %s", [slot])
    assert verify().broken == {"slot_is_recorded_once": [f"{name} {format_slot(slot)}"]}


def test_a_doubled_message_is_named(name: str) -> None:
    slot = Slot.objects.order_by("slot_at")[7]
    query(
        "INSERT INTO pulljobs_message (channel_id, published_at, priority, content_type, headers,"
        " payload) SELECT channel_id, published_at, priority, content_type, headers, payload"
        " FROM pulljobs_message WHERE id = %s",
        [slot.message_id],
    )
    assert verify(now() - OLDEST).broken == {
        "slot_is_published_once": [f"{name} {format_slot(slot.slot_at)}"]
    }


def test_a_doubled_message_of_an_older_rule_is_not_named(name: str) -> None:
    slot = Slot.objects.order_by("slot_at")[7]
    query(
        "INSERT INTO pulljobs_message (channel_id, published_at, priority, content_type, headers,"
        " payload) SELECT channel_id, published_at, priority, content_type, headers, payload"
        " FROM pulljobs_message WHERE id = %s",
        [slot.message_id],
    )
    query("UPDATE pulljobs_schedule SET rule_since = %s", [slot.slot_at])
    assert verify(now() - OLDEST).broken == {}


def test_the_messages_of_a_channel_are_read_once_for_all_its_schedules(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []

    def note(using: str, name: str, params: Any) -> Any:
        statements.append(name)
        return run(using, name, params)

    monkeypatch.setattr("pulljobs.schedules.verifying.run", note)
    for number in range(3):
        make_due(make(f"tenant-{number}", cron="0 * * * *"), 3)
    fire_due()
    assert verify().schedules == 3
    assert statements.count("slots_of_schedule") == 3
    assert statements.count("doubled_slots") == 1


def test_a_record_beside_the_rule_is_named(name: str) -> None:
    slot = Slot.objects.order_by("slot_at")[7].slot_at + timedelta(seconds=30)
    query("UPDATE pulljobs_slot SET slot_at = %s WHERE slot_at = %s", [slot, slot - MINUTE / 2])
    assert set(verify().broken) == {"slot_is_recorded", "slot_is_planned"}


def test_a_fired_slot_without_its_message_is_named(name: str) -> None:
    slot = Slot.objects.order_by("slot_at")[7]
    query("UPDATE pulljobs_slot SET message_id = 1 WHERE slot_at = %s", [slot.slot_at])
    assert verify().broken == {
        "fired_slot_has_its_message": [f"{name} {format_slot(slot.slot_at)}"]
    }


def test_a_window_is_checked_from_its_begin_to_its_end(make: Make) -> None:
    row = make(missed="all")
    slots = make_due(row, 10)
    query("UPDATE pulljobs_schedule SET rule_since = %s", [slots[0] - MINUTE / 2])
    fire_due()
    query("DELETE FROM pulljobs_slot WHERE slot_at IN (%s, %s)", [slots[2], slots[6]])
    assert slots[2] not in recorded(row)
    result = verify(slots[4] - MINUTE / 2, slots[8] + MINUTE / 2)
    assert result.broken == {"slot_is_recorded": [f"{row.name} {format_slot(slots[6])}"]}
    assert result.slots == 5
