"""The code of the guide on periodic jobs works."""

from collections.abc import Iterator
from types import ModuleType

import pytest

from pulljobs import handlers, schedules
from pulljobs.schedules import declaring
from pulljobs.schedules.firing import fire_due
from pulljobs.schedules.models import Schedule
from pulljobs.testing import drain
from tests.guides import forget, modules_of
from tests.handling import registry_of_its_own
from tests.schedules.conftest import make_due


@pytest.fixture
def code(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    monkeypatch.setattr(declaring, "_declared", {})
    with registry_of_its_own():
        try:
            yield modules_of("guides/periodic-jobs.md")
        finally:
            forget("reports")


@pytest.mark.django_db(transaction=True)
def test_a_declared_schedule_runs_its_handler_for_its_slot(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    schedules.sync()
    [slot] = make_due(Schedule.objects.get(name="reports-daily"))
    fire_due()
    [job] = drain()
    assert job.job.result == f"the report of {slot:%Y-%m-%d}"


@pytest.mark.django_db
def test_a_tenant_gets_schedules_of_its_own(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    code["reports.tenants"].add_tenant("acme", "Asia/Tokyo")
    names = list(Schedule.objects.order_by("name").values_list("name", flat=True))
    assert names == ["report-acme", "sync-acme"]
