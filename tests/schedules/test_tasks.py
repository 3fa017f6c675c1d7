"""Tests of schedules of Django's tasks."""

from datetime import timedelta
from types import ModuleType

import pytest
from django.db import transaction
from django.utils import timezone

from pulljobs import ids, schedules
from pulljobs.errors import InvalidSchedule
from pulljobs.schedules.firing import fire_due
from pulljobs.schedules.models import Schedule
from pulljobs.testing import drain
from tests.schedules.conftest import make_due
from tests.tasks_backend.conftest import tasks

__all__ = ["tasks"]

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_task_runs_with_its_arguments_at_each_slot(tasks: ModuleType) -> None:
    row = schedules.create_for_task("sums", tasks.add, [2], {"right": 3}, cron="* * * * *")
    make_due(row)
    fire_due()
    [ran] = drain()
    assert ran.job.result == 5
    assert tasks.add.get_backend().get_result(ids.encode(ran.job.id)).return_value == 5


def test_a_schedule_of_a_task_has_the_queue_and_the_priority_of_the_task(tasks: ModuleType) -> None:
    row = schedules.create_for_task("greetings", tasks.greet, ["Ada"], every=timedelta(hours=1))
    assert (row.channel_name, row.priority) == ("tasks-default-receipts", 10)
    row = schedules.create_for_task("sums", tasks.add.using(priority=5.0), [1, 2], cron="@daily")
    assert row.priority == 5


def test_a_schedule_of_a_task_that_rolls_back_leaves_nothing(tasks: ModuleType) -> None:
    with transaction.atomic():
        for tenant in range(3):
            schedules.create_for_task(f"tenant-{tenant}", tasks.add, [1, 2], cron="@daily")
        transaction.set_rollback(True)
    assert not Schedule.objects.exists()


def test_tasks_that_no_rule_can_run_are_refused(tasks: ModuleType) -> None:
    late = tasks.add.using(run_after=timezone.now() + timedelta(hours=1))
    with pytest.raises(InvalidSchedule, match="leave out run_after"):
        schedules.create_for_task("late", late, [1, 2], cron="@daily")
    with pytest.raises(InvalidSchedule, match="must be a task of Django"):
        schedules.create_for_task("none", print, cron="@daily")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        schedules.create_for_task("object", tasks.add, [object()], cron="@daily")
    assert not Schedule.objects.exists()
