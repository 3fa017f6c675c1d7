"""Guides on moving from other systems: their new code and the code that moves data work."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.contrib import admin
from django.core import mail
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.test import modify_settings, override_settings
from django.utils import timezone

from pulljobs import handlers, schedules
from pulljobs.models import Job, Message
from pulljobs.schedules import declaring
from pulljobs.schedules.models import Schedule
from pulljobs.states import State
from pulljobs.tasks_backend import PullJobsBackend, handler
from pulljobs.tasks_backend.interface import task_backends
from pulljobs.testing import drain
from tests.guides import forget, modules_of
from tests.handling import registry_of_its_own
from tests.tasks_backend.conftest import reload_backends

pytestmark = pytest.mark.django_db(transaction=True)
PATH = "tests.docs.enqueued.send_receipt"


@contextmanager
def shop(page: str) -> Iterator[dict[str, ModuleType]]:
    with registry_of_its_own():
        try:
            made = modules_of(page)
            handlers.sync_consumers()
            yield made
        finally:
            forget("orders")


def test_a_task_of_celery_runs_by_celery_or_by_pulljobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A setting of the guide decides whether Celery or pulljobs sends the next receipt."""
    sent: list[dict[str, Any]] = []
    celery: Any = ModuleType("orders.celery_tasks")
    celery.send_receipt = SimpleNamespace(delay=lambda **arguments: sent.append(arguments))
    with shop("moving/from-celery.md") as made:
        monkeypatch.setitem(sys.modules, "orders.celery_tasks", celery)
        with override_settings(RECEIPTS_BY="celery"):
            made["orders.ordering"].place_order(7, "ann@example.org")
        with override_settings(RECEIPTS_BY="pulljobs"):
            made["orders.ordering"].place_order(8, "bob@example.org")
        assert [run.job.state for run in drain()] == [State.DELIVERED]
    assert sent == [{"order_id": 7, "email": "ann@example.org"}]
    assert [message.to for message in mail.outbox] == [["bob@example.org"]]


@pytest.mark.parametrize("page", ["from-faststream.md", "from-nats.md", "from-nsq.md"])
def test_a_receipt_is_sent_once_its_order_is_saved(page: str) -> None:
    """An order that is rolled back sends no receipt."""
    with shop(f"moving/{page}") as made:
        place_order = made["orders.ordering"].place_order
        with transaction.atomic():
            place_order(7, "ann@example.org")
            transaction.set_rollback(True)
        place_order(8, "bob@example.org")
        assert [run.job.state for run in drain()] == [State.DELIVERED]
    assert [message.to for message in mail.outbox] == [["bob@example.org"]]


def test_tasks_of_django_are_moved_where_they_wait() -> None:
    """Waiting tasks become jobs with their arguments, priority and time. A running task stays."""
    with modify_settings(INSTALLED_APPS={"append": "django_tasks_db"}), table() as results:
        never = timezone.now().replace(year=9999)
        later = timezone.now() + timedelta(hours=1)
        add(results, [7], {"email": "ann@example.org"}, run_after=never, priority=10)
        add(results, [8, "bob@example.org"], {}, run_after=later)
        add(results, [9, "cyn@example.org"], {}, run_after=never, status="RUNNING")
        with shop("moving/from-django-tasks.md") as made:
            assert made["orders.draining"].move(PATH, "receipts") == 2
            made["orders.ordering"].place_order(1, "dan@example.org")
            assert [run.job.result for run in drain()] == [
                {"sent to": "ann@example.org"},
                {"sent to": "dan@example.org"},
            ]
        assert [row.status for row in results.objects.all()] == ["RUNNING"]
    assert sorted(Message.objects.values_list("priority", flat=True)) == [0, 10, 10]
    assert Job.objects.get().available_at == later


def test_tasks_of_django_keep_running_by_another_backend() -> None:
    """The settings name both backends. Waiting tasks are renamed to the old backend's new alias."""
    with modify_settings(INSTALLED_APPS={"append": "django_tasks_db"}), table() as results:
        never = timezone.now().replace(year=9999)
        add(results, [], {}, run_after=never, backend_name="default")
        add(results, [], {}, run_after=never, backend_name="default", status="RUNNING")
        with shop("moving/from-django-tasks.md") as made:
            assert made["orders.renaming"].rename() == 1
            shown = made["settings"].TASKS
        forget("settings")
        assert sorted(results.objects.values_list("backend_name", flat=True)) == ["default", "old"]
        with override_settings(TASKS=shown):
            reload_backends()
            ours, old = (task_backends[alias] for alias in ("default", "old"))
            assert isinstance(ours, PullJobsBackend)
            assert [ours.check(), old.check()] == [[], []]
            with registry_of_its_own():
                handler.register(ours)
                assert {handler.timeout for handler in handlers.registered()} == {
                    timedelta(minutes=5)
                }
        reload_backends()


def test_times_of_celery_beat_become_schedules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of Celery beat that become schedules are disabled. The others stay, with a reason."""
    monkeypatch.setattr(declaring, "_declared", {})
    rows = [
        beat_row("weekly", crontab=beat_crontab(day_of_week="mon"), priority=9),
        beat_row("often", interval=SimpleNamespace(period="minutes", every=5), expire_seconds=60),
        beat_row("both days", crontab=beat_crontab(day_of_month="1-7", day_of_week="mon")),
        beat_row("down", crontab=beat_crontab(day_of_week="fri-mon")),
        beat_row("once", interval=SimpleNamespace(period="days", every=1), one_off=True),
        beat_row("daily report", crontab=beat_crontab()),
    ]
    with shop("moving/from-celery-beat.md") as made:
        schedules.sync()
        left = made["orders.moving_beat"].move(rows, "reports")
        moved = {row.name: row for row in Schedule.objects.all()}
        assert moved.keys() == {"weekly", "often", "daily report"}
        schedules.fire_now("daily report")
        [run] = drain()
        assert str(run.job.result).startswith("daily report of 2")
    assert left.keys() == {"both days", "down", "once", "daily report"}
    assert "fri-sat,sun-mon" in left["down"].lower()
    assert [row.enabled for row in rows] == [False, False, True, True, True, True]
    assert (moved["weekly"].cron, moved["weekly"].timezone) == ("0 6 * * mon", "Europe/Berlin")
    assert (moved["weekly"].priority, moved["weekly"].headers) == (9, {"lang": "de"})
    assert moved["often"].every == timedelta(minutes=5)
    assert moved["often"].misfire_grace == timedelta(minutes=1)


def beat_row(name: str, **given: Any) -> SimpleNamespace:
    """Return an object with the fields of a PeriodicTask of django-celery-beat."""
    names = ["crontab", "interval", "start_time", "expires", "expire_seconds", "priority"]
    texts = {"kwargs": '{"kind": "all"}', "args": "[]", "headers": '{"lang": "de"}'}
    fields: dict[str, Any] = {**dict.fromkeys(names), **texts, "one_off": False, "enabled": True}
    return SimpleNamespace(name=name, save=lambda: None, **{**fields, **given})


def beat_crontab(**given: str) -> SimpleNamespace:
    fields = {"minute": "0", "hour": "6", "timezone": "Europe/Berlin"}
    any_day = dict.fromkeys(["day_of_month", "month_of_year", "day_of_week"], "*")
    return SimpleNamespace(**{**any_day, **fields, **given})


@contextmanager
def table() -> Iterator[Any]:
    """Create the table of django-tasks-db for the block: no project here has its app installed."""
    from django_tasks_db.models import DBTaskResult

    with connections[DEFAULT_DB_ALIAS].schema_editor() as editor:
        editor.create_model(DBTaskResult)
    try:
        yield DBTaskResult
    finally:
        with connections[DEFAULT_DB_ALIAS].schema_editor() as editor:
            editor.delete_model(DBTaskResult)
        if admin.site.is_registered(DBTaskResult):  # the app registered it when it was imported
            admin.site.unregister(DBTaskResult)


def add(results: Any, args: list[Any], kwargs: dict[str, Any], **fields: Any) -> None:
    given: dict[str, Any] = {"args_kwargs": {"args": args, "kwargs": kwargs}}
    given |= {"backend_name": "default", "task_path": PATH} | fields
    results.objects.create(**given)
