"""Tests of the system check of declared schedules."""

import sys
from collections.abc import Iterator
from types import ModuleType

import pytest
from django.core.checks import run_checks
from django.test import modify_settings, override_settings

from pulljobs import hooks, schedules
from pulljobs.errors import InvalidSchedule
from pulljobs.schedules import declaring
from tests.handling import registry_of_its_own
from tests.tasks_backend.conftest import tasks

__all__ = ["tasks"]

APP = "tests.schedules.app"


@pytest.fixture(autouse=True)
def _own_declarations(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(declaring, "_declared", {})
    with registry_of_its_own():
        yield
    sys.modules.pop(f"{APP}.pull_handlers", None)


def find_problems() -> dict[str, tuple[str, str]]:
    """Return id and text of what the system check reports, by the schedule that it is about."""
    ids = ("E035", "E036", "E037", "W012", "W013")
    return {
        str(check.obj): (str(check.id), str(check.msg))
        for check in run_checks()
        if check.id in {f"pulljobs.{id}" for id in ids}
    }


def test_the_check_names_each_wrong_declaration_with_its_mistake() -> None:
    with modify_settings(INSTALLED_APPS={"append": APP}):
        problems = find_problems()
    assert {subject: id for subject, (id, _text) in problems.items()} == {
        "schedule 'reports-daily'": "pulljobs.E035",
        "schedule 'zone'": "pulljobs.E035",
        "schedule 'spelling'": "pulljobs.E035",
        "schedule 'fine'": "pulljobs.E036",
        "schedule 'lost'": "pulljobs.W012",
    }
    assert "field 2 (hour)" in problems["schedule 'reports-daily'"][1]
    assert "did you mean 'Europe/Berlin'?" in problems["schedule 'zone'"][1]
    assert "try 'missed'" in problems["schedule 'spelling'"][1]
    assert "Two schedules are called 'fine'" in problems["schedule 'fine'"][1]
    assert "No handler has the channel 'report'" in problems["schedule 'lost'"][1]


def test_a_wrong_setting_is_not_blamed_on_the_declared_schedules() -> None:
    with modify_settings(INSTALLED_APPS={"append": APP}), override_settings(PULLJOBS={"LISTEN": 1}):
        assert find_problems() == {}
        assert [check.id for check in run_checks()] == ["pulljobs.E002"]


def test_a_declaration_is_refused_at_once_where_no_check_runs() -> None:
    with declaring.collecting_errors() as refused:
        schedules.declare("daily", "reports", cron="0 25 * * *")
    assert [name for name, _error in refused] == ["daily"]
    with pytest.raises(InvalidSchedule):
        schedules.declare("daily", "reports", cron="0 25 * * *")


def test_apps_that_are_loaded_again_register_their_hooks_once() -> None:
    with modify_settings(INSTALLED_APPS={"append": APP}):
        pass
    for names in (
        hooks.api_operations,
        hooks.dashboard_sections,
        hooks.doctor_checks,
        hooks.forgetters,
        hooks.history_keepers,
        hooks.ranges,
    ):
        assert len(names) == len(set(names)) > 0


def test_a_module_that_cannot_be_imported_stops_no_migration() -> None:
    with modify_settings(INSTALLED_APPS={"append": "tests.schedules.unimportable"}):
        [(id, text)] = find_problems().values()
    assert id == "pulljobs.W013"
    assert "A setting of the handlers is missing." in text


def test_a_declared_task_that_does_not_exist_is_an_error(tasks: ModuleType) -> None:
    schedules.declare_for_task("sums", tasks.add, [1, 2], cron="@daily")
    content = {"task": "shop.tasks.gone", "backend": "default", "queue": "default"}
    schedules.declare("gone", "tasks-default-default", content, cron="@daily")
    schedules.declare("broken", "tasks-default-default", "no task", cron="@daily")
    problems = find_problems()
    assert {subject: id for subject, (id, _text) in problems.items()} == {
        "schedule 'gone'": "pulljobs.E037",
        "schedule 'broken'": "pulljobs.E037",
    }
    assert "'shop.tasks.gone', which does not exist" in problems["schedule 'gone'"][1]
