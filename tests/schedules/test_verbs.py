"""Tests of `manage.py pulljobs schedules`, and of what `doctor` says of schedules."""

import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections
from django.test.utils import CaptureQueriesContext

from pulljobs.diagnosis import doctor
from pulljobs.models import AuditEntry, Channel, Consumer
from pulljobs.schedules.firing import fire_due
from pulljobs.schedules.rules import format_slot
from tests.factories import USING
from tests.schedules.conftest import Make, make_due, now, reasons
from tests.sessions import query

pytestmark = pytest.mark.django_db
MINUTE = timedelta(minutes=1)


def run_text(*arguments: str) -> str:
    output = StringIO()
    call_command("pulljobs", "schedules", *arguments, stdout=output)
    return output.getvalue()


def run_json(*arguments: str) -> Any:
    return json.loads(run_text(*arguments, "--json"))


def test_list_and_show_say_when_the_next_slot_is(make: Make) -> None:
    row = make(timezone="Europe/Berlin", key="customer-7", cost=3)
    make_due(row, 3)
    fire_due()
    [listed] = run_json("list")["schedules"]
    assert (listed["name"], listed["state"], listed["last_reason"]) == (
        "each-minute",
        "active",
        "due",
    )
    assert "each-minute" in run_text("list")
    shown = run_json("show", "each-minute")
    assert shown["rule"] == "Every minute (Europe/Berlin)"
    assert (shown["key"], shown["priority"], shown["cost"]) == ("customer-7", 0, 3)
    assert len(shown["upcoming"]) == 10
    assert [slot["reason"] for slot in shown["history"]] == ["due", "missed", "missed"]
    assert "History" in run_text("show", "each-minute")


def test_next_marks_the_change_of_daylight_saving(make: Make) -> None:
    rule = ["--cron", "0 12 * * *", "--timezone", "Europe/Berlin", "--count", "400"]
    upcoming = run_json("next", *rule)["upcoming"]
    changes = [slot["change"] for slot in upcoming if slot["change"]]
    assert sorted(set(changes)) == ["clock changes by +01:00", "clock changes by -01:00"]
    make()
    assert len(run_json("next", "each-minute", "--count", "3")["upcoming"]) == 3
    assert "Every 5 minutes." in run_text("next", "--every", "5m")


@pytest.mark.parametrize(
    ("arguments", "advice"),
    [
        (["next", "--cron", "0 25 * * *"], r"field 2 \(hour\)"),
        (["next"], "Give either"),
        (["show", "nothing"], "no schedule 'nothing'"),
        (["fire", "nothing"], "no schedule 'nothing'"),
        (["pause", "each-minute", "--until", "2020-01-01T00:00Z"], "must end in the future"),
        (["pause", "each-minute", "--for", "0s"], "must end in the future"),
        (["backfill", "each-minute", "2020-01-01T00:00Z", "2020-02-01T00:00Z"], "more than 1,000"),
        (["backfill", "each-minute", "2020-01-02T00:00Z", "2020-01-01T00:00Z"], "after the start"),
    ],
)
def test_an_invalid_argument_is_explained(make: Make, arguments: list[str], advice: str) -> None:
    make()
    with pytest.raises(CommandError, match=advice) as refused:
        run_text(*arguments)
    assert refused.value.returncode == 2
    assert not AuditEntry.objects.exists()


def test_acts_show_times_in_utc_as_other_commands_do(make: Make) -> None:
    row = make(every=timedelta(days=365))
    paused = run_text("pause", "each-minute", "--until", "2100-01-01T00:00+02:00")
    assert paused.split()[-1] == "2099-12-31T22:00:00Z"
    assert row.next_slot is not None
    assert run_json("resume", "each-minute")["next_slot"] == format_slot(row.next_slot)
    assert run_text("fire", "each-minute").split()[-2:] == ["error", "none"]


def test_a_pause_may_have_a_length(make: Make) -> None:
    row = make()
    run_text("pause", "each-minute", "--for", "2h")
    row.refresh_from_db()
    assert row.paused_at is not None
    assert row.paused_until is not None
    assert abs(row.paused_until - row.paused_at - 120 * MINUTE) < MINUTE


def test_acts_are_in_the_audit_trail(make: Make) -> None:
    row = make()
    end = now().replace(second=0, microsecond=0) - 60 * MINUTE
    window = [format_slot(end - 3 * MINUTE), format_slot(end)]
    assert run_json("fire", "each-minute")["reason"] == "now"
    assert run_json("pause", "each-minute")["paused_until"] == "it is resumed"
    assert run_json("list")["schedules"][0]["state"] == "paused"
    run_json("resume", "each-minute")
    assert run_json("backfill", "each-minute", *window)["fired"] == 3
    assert reasons(row).count("backfill") == 3
    entries = AuditEntry.objects.order_by("id").values_list("act", "done", "subject")
    assert list(entries) == [
        ("fire", 1, "schedule each-minute"),
        ("pause", 1, "schedule each-minute"),
        ("resume", 1, "schedule each-minute"),
        ("backfill", 3, f"schedule each-minute, {window[0]} to {window[1]}"),
    ]


def test_run_once_fires_what_is_due(make: Make) -> None:
    row = make()
    make_due(row)
    assert run_json("run", "--once") == {"slots": 1}
    assert reasons(row) == ["due"]


def test_verify_ends_with_1_if_a_slot_has_no_record(make: Make) -> None:
    row = make(missed="all")
    slots = make_due(row, 5)
    query("UPDATE pulljobs_schedule SET rule_since = %s", [slots[0] - MINUTE / 2])
    fire_due()
    assert run_json("verify")["ok"]
    assert "Every slot is accounted for." in run_text("verify")
    query("DELETE FROM pulljobs_slot WHERE slot_at = %s", [slots[2]])
    content = fail_json("schedules", "verify")
    missing = content["broken"]["slot_is_recorded"]
    assert (content["ok"], missing["count"]) == (False, 1)
    assert missing["slots"] == [f"each-minute {format_slot(slots[2])}"]


def test_verify_names_schedules_whose_time_zone_is_unknown_here(make: Make) -> None:
    make()
    row = make("other")
    query("UPDATE pulljobs_schedule SET timezone = 'Mars/Base' WHERE id = %s", [row.pk])
    content = fail_json("schedules", "verify")
    assert content["broken"]["rule_can_be_evaluated"]["slots"] == ["other Mars/Base"]
    assert content["schedules"] == 1
    assert "Mars/Base" in run_json("show", "other")["error"]
    with pytest.raises(CommandError, match="does not know the time zone 'Mars/Base'"):
        run_text("next", "other")


def test_the_verify_of_all_tables_compares_slots_too(make: Make) -> None:
    row = make(missed="all")
    slots = make_due(row, 5)
    query("UPDATE pulljobs_schedule SET rule_since = %s", [slots[0] - MINUTE / 2])
    fire_due()
    assert verify_all()["looked_at"]["slots of schedules"] >= 4
    query("DELETE FROM pulljobs_slot WHERE slot_at = %s", [slots[2]])
    content = fail_json("verify", "--patience", "0")
    assert content["broken"]["slot_is_recorded"]["count"] == 1


def verify_all() -> Any:
    output = StringIO()
    call_command("pulljobs", "verify", "--patience", "0", "--json", stdout=output)
    return json.loads(output.getvalue())


def fail_json(*arguments: str) -> Any:
    """Run a verb of `manage.py pulljobs` that must exit with 1. Return its parsed JSON."""
    output = StringIO()
    with pytest.raises(SystemExit) as ended:
        call_command("pulljobs", *arguments, "--json", stdout=output)
    assert ended.value.code == 1
    return json.loads(output.getvalue())


def findings() -> dict[str, str]:
    return {each.code: each.text for each in doctor.examine(timedelta(days=1))}


def test_neither_the_list_nor_doctor_reads_payloads(make: Make) -> None:
    for number in range(2):
        make(f"tenant-{number}", headers={"a": "b"})
    query("UPDATE pulljobs_schedule SET failures = 1, error = 'no channel'")
    with CaptureQueriesContext(connections[USING]) as captured:
        run_json("list")
        findings()
    read = [sql["sql"] for sql in captured if "pulljobs_schedule" in sql["sql"]]
    assert len(read) > 2
    assert not [sql for sql in read if '"payload"' in sql or '"headers"' in sql]


def test_doctor_names_schedules_that_are_late_refused_or_useless(
    make: Make, consumer: Consumer
) -> None:
    make("good")
    assert not {"late_schedules", "refused_schedule", "schedules_without_consumer"} & set(
        findings()
    )
    late, refused, useless = make("late"), make("refused"), make("useless")
    query("UPDATE pulljobs_schedule SET due_at = now() - interval '1 h' WHERE id = %s", [late.pk])
    query(
        "UPDATE pulljobs_schedule SET failures = 2, error = 'no channel' WHERE id = %s",
        [refused.pk],
    )
    Channel.objects.create(name="empty")
    query("UPDATE pulljobs_schedule SET channel_name = 'empty' WHERE id = %s", [useless.pk])
    texts = findings()
    assert "late" in texts["late_schedules"]
    assert "refused can't publish (2 attempts): no channel" in texts["refused_schedule"]
    assert "useless" in texts["schedules_without_consumer"]
