"""Tests of schedules that code declares."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import wraps
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from pulljobs import schedules
from pulljobs.errors import ConfigurationError, InvalidSchedule
from pulljobs.handlers import ClaimedJob, handler
from pulljobs.management.job_actions import operator_name
from pulljobs.models import AuditEntry, Channel
from pulljobs.schedules import declaring
from pulljobs.schedules.models import Schedule
from pulljobs.workflows import Run, definitions, workflow
from tests.handling import registry_of_its_own

pytestmark = [pytest.mark.django_db, pytest.mark.storage]


@pytest.fixture(autouse=True)
def _own_declarations(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(declaring, "_declared", {})
    monkeypatch.setattr(definitions, "_registered", {})
    with registry_of_its_own():
        yield


def send(job: ClaimedJob) -> None:
    pass


def test_a_schedule_above_a_handler_publishes_on_its_channel() -> None:
    registered = handler(channel="invoices", consumer="sending")(send)
    assert schedules.every(cron="0 6 * * 1-5", timezone="Europe/Berlin")(registered) is send
    [update] = schedules.sync()
    assert update.is_created
    row = Schedule.objects.get()
    assert (row.name, row.channel_name, row.is_declared) == ("invoices-sending", "invoices", True)
    assert Channel.objects.filter(name="invoices").exists()
    assert schedules.sync() == []


def test_a_schedule_above_a_workflow_starts_its_runs() -> None:
    def bill(run: Run) -> None: ...

    registered = workflow(channel="bills", consumer="billing")(bill)
    assert schedules.every(cron="0 6 1 * *")(registered) is bill
    schedules.sync()
    row = Schedule.objects.get()
    assert (row.name, row.channel_name) == ("bills-billing", "bills")


@pytest.mark.parametrize("above", [None, wraps(send)(lambda job: None)])
def test_a_schedule_above_no_handler_is_refused(above: Any) -> None:
    """A schedule above a decorator that returns None or a function without handler is refused."""
    handler(channel="invoices", consumer="sending")(send)
    with pytest.raises(ConfigurationError, match="put @handler or @workflow below it"):
        schedules.every(cron="0 5 * * *")(above)


def test_a_row_counts_once_it_exists_until_it_is_updated() -> None:
    schedules.declare("daily", "reports", {"kind": "all"}, cron="0 6 * * *")
    schedules.sync()
    schedules.update("daily", cron="0 7 * * *", priority=3)
    assert schedules.sync() == []
    [change] = schedules.sync(dry_run=True)
    assert change.changes == {"cron": ("0 7 * * *", "0 6 * * *"), "priority": (3, 0)}
    assert Schedule.objects.get().cron == "0 7 * * *"
    schedules.sync(update=True)
    row = Schedule.objects.get()
    assert (row.cron, row.priority) == ("0 6 * * *", 0)
    [unchanged] = schedules.sync(update=True)
    assert unchanged.changes == {}


@pytest.mark.parametrize("content_type", [None, "application/vnd.report+json"])
def test_a_changed_payload_keeps_the_content_type_that_code_says(
    monkeypatch: pytest.MonkeyPatch, content_type: str | None
) -> None:
    rule = {"cron": "0 6 * * *", "content_type": content_type}
    schedules.declare("daily", "reports", {"kind": "all"}, **rule)
    schedules.sync()
    monkeypatch.setattr(declaring, "_declared", {})
    schedules.declare("daily", "reports", {"kind": "new"}, **rule)
    schedules.sync(update=True)
    row = Schedule.objects.get()
    assert bytes(row.payload) == b'{"kind": "new"}'
    assert row.content_type == (content_type or "application/json")
    [unchanged] = schedules.sync(update=True)
    assert unchanged.changes == {}


def test_a_sync_names_a_changed_payload_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    schedules.declare("daily", "reports", {"kind": "all"}, cron="0 6 * * *")
    schedules.sync()
    monkeypatch.setattr(declaring, "_declared", {})
    schedules.declare("daily", "reports", {"kind": "new"}, cron="0 6 * * *")
    written = StringIO()
    call_command("pulljobs", "schedules", "sync", "--update", stdout=written)
    last = " ".join(written.getvalue().splitlines()[-1].split())
    assert last == "daily payload not shown not shown"


def test_what_an_operator_syncs_is_in_the_audit_trail() -> None:
    """Changes of `pulljobs schedules sync` are audited, but not those of a worker at its start."""
    schedules.declare("daily", "reports", cron="0 6 * * *")
    call_command("pulljobs", "schedules", "sync", "--dry-run", stdout=StringIO())
    assert not AuditEntry.objects.exists()
    schedules.sync()
    assert not AuditEntry.objects.exists()
    schedules.declare("weekly", "reports", cron="0 6 * * 1")
    schedules.update("daily", cron="0 7 * * *", priority=3)
    for _ in range(2):
        call_command("pulljobs", "schedules", "sync", "--update", stdout=StringIO())
    entries = AuditEntry.objects.order_by("id")
    assert list(entries.values_list("act", "subject")) == [
        ("update", "schedule daily: cron, priority"),
        ("create", "schedule weekly"),
    ]
    assert {entry.by for entry in entries} == {operator_name()}


def test_a_sync_finds_no_change_where_a_row_has_the_same_rule() -> None:
    schedules.declare("daily", "daily", cron="0  6 * * *", jitter=None)
    schedules.sync()
    [update] = schedules.sync(update=True)
    assert update.changes == {}


def test_a_declared_interval_keeps_its_start() -> None:
    schedules.declare("often", "reports", every=timedelta(minutes=5))
    schedules.sync()
    before = Schedule.objects.get()
    [unchanged] = schedules.sync(update=True)
    assert unchanged.changes == {}
    assert Schedule.objects.get().next_slot == before.next_slot


def test_a_dry_run_creates_nothing() -> None:
    schedules.declare("daily", "reports", cron="0 6 * * *")
    [update] = schedules.sync(dry_run=True)
    assert update.is_created
    assert not Schedule.objects.exists()
    assert not Channel.objects.filter(name="reports").exists()


def test_a_row_whose_declaration_is_gone_is_named_and_can_be_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schedules.declare("daily", "reports", cron="0 6 * * *")
    schedules.sync()
    assert declaring.undeclared() == []
    monkeypatch.setattr(declaring, "_declared", {})
    assert declaring.undeclared() == ["daily"]
    schedules.delete("daily")
    assert declaring.undeclared() == []


def test_a_declaration_that_cannot_work_is_refused_when_it_is_imported() -> None:
    with pytest.raises(InvalidSchedule, match=r"field 2 \(hour\)"):
        schedules.declare("daily", "reports", cron="0 25 * * *")
    with pytest.raises(InvalidSchedule, match="try 'timezone'"):
        schedules.declare("daily", "reports", cron="0 5 * * *", timezon="UTC")
    for channel in ("", "a/b", "x" * 256, None):
        with pytest.raises(InvalidSchedule, match="channel"):
            schedules.declare("daily", channel, cron="0 5 * * *")  # type: ignore[arg-type]
    assert declaring.declared() == {}
    with pytest.raises(ConfigurationError, match="without a rule: write @every"):
        schedules.every(send)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="put @handler or @workflow below it"):
        schedules.every(cron="0 5 * * *")(send)


def test_two_declarations_of_one_name_are_refused() -> None:
    schedules.declare("daily", "reports", cron="0 6 * * *")
    schedules.declare("daily", "reports", cron="0 6 * * *")
    with pytest.raises(ConfigurationError, match="Two schedules are called 'daily'"):
        schedules.declare("daily", "reports", cron="0 7 * * *")


def test_a_declared_rule_that_is_over_stops_no_worker(caplog: pytest.LogCaptureFixture) -> None:
    ends_at = datetime(2020, 1, 1, tzinfo=UTC)
    schedules.declare("over", "reports", cron="0 6 * * *", ends_at=ends_at)
    schedules.declare("daily", "reports", cron="0 6 * * *")
    assert [update.name for update in schedules.sync() if update.is_created] == ["daily"]
    assert list(Schedule.objects.values_list("name", flat=True)) == ["daily"]
    assert "Schedule over is declared, but not created" in caplog.text


def test_a_declared_rule_that_is_over_stops_no_other_update(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("first", "second"):
        schedules.declare(name, "reports", cron="0 6 * * *")
    schedules.sync()
    monkeypatch.setattr(declaring, "_declared", {})
    over = datetime(2020, 1, 1, tzinfo=UTC)
    schedules.declare("first", "reports", cron="0 6 * * *", ends_at=over)
    schedules.declare("second", "reports", cron="0 7 * * *")
    changed = [update.name for update in schedules.sync(update=True) if update.changes]
    assert changed == ["second"]
    assert "Schedule first is declared, but not updated" in caplog.text
