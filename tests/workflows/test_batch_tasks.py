"""Tasks of Django as members and callbacks of batches."""

import pytest
from django.db.models.functions import Now

from pulljobs import batches
from pulljobs.errors import ConfigurationError, InvalidMessage
from pulljobs.models import Consumer, Message
from pulljobs.tasks_backend.interface import task_enqueued
from tests.tasks_backend.conftest import tasks  # noqa: F401  a fixture
from tests.tasks_backend.test_backend import received
from tests.workflows.conftest import BATCH, settle, sweep


@pytest.mark.django_db
@pytest.mark.usefixtures("tasks")
def test_tasks_are_members_and_callbacks() -> None:
    from tests.tasks_backend import declared

    called = batches.call_task(declared.add, args=[1, 2])
    with batches.batch("tasks", on_success=called) as made, received(task_enqueued) as statuses:
        result = batches.enqueue(made, declared.add, args=[3, 4])
    assert statuses == ["READY"]
    assert batches.get(made.id).members == 1
    assert list(result.args) == [3, 4]
    settle(Consumer.objects.get(channel__name=called.channel), 1)
    sweep()
    callback = Message.objects.order_by("-id")[0]
    assert callback.headers[f"{BATCH}-Event"] == "success"
    with pytest.raises(InvalidMessage, match="task must be a task of Django"):
        batches.call_task(len)  # type: ignore[arg-type]  # what a caller may pass


@pytest.mark.django_db
@pytest.mark.usefixtures("tasks")
def test_a_task_of_a_deleted_consumer_becomes_no_member() -> None:
    from tests.tasks_backend import declared

    batches.call_task(declared.add)
    Consumer.objects.update(deleted_at=Now())
    made = batches.create("tasks")
    with pytest.raises(ConfigurationError, match="restore the consumer"):
        batches.enqueue(made, declared.add, args=[3, 4])
    assert batches.get(made.id).members == 0
    assert not Message.objects.exists()
