"""Tasks of Django as members and callbacks of batches."""

import pytest

from pulljobs import batches
from pulljobs.errors import InvalidMessage
from pulljobs.models import Consumer, Message
from tests.tasks_backend.conftest import tasks  # noqa: F401  a fixture
from tests.workflows.conftest import BATCH, settle, sweep


@pytest.mark.django_db
@pytest.mark.usefixtures("tasks")
def test_tasks_are_members_and_callbacks() -> None:
    from tests.tasks_backend import declared

    called = batches.call_task(declared.add, args=[1, 2])
    with batches.batch("tasks", on_success=called) as made:
        result = batches.enqueue(made, declared.add, args=[3, 4])
    assert batches.get(made.id).members == 1
    assert list(result.args) == [3, 4]
    settle(Consumer.objects.get(channel__name=called.channel), 1)
    sweep()
    callback = Message.objects.order_by("-id")[0]
    assert callback.headers[f"{BATCH}-Event"] == "success"
    with pytest.raises(InvalidMessage, match="task must be a task of Django"):
        batches.call_task(len)  # type: ignore[arg-type]  # what a caller may pass
