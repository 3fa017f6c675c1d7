"""Tasks of a project, to be imported once `TASKS` is as `conftest.py` has it."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ObjectDoesNotExist

from pulljobs.errors import Discard, Retry
from pulljobs.tasks_backend.interface import TaskContext

if TYPE_CHECKING or find_spec("django.tasks"):
    from django.tasks import task
else:
    from django_tasks import task


@task
def add(left: int, right: int) -> int:
    return left + right


@task(queue_name="receipts", priority=10)
async def greet(name: str) -> dict[str, str]:
    return {"hello": name}


@task
def fail(text: str) -> None:
    raise ValueError(text)


@task(takes_context=True)
def attempts(context: "TaskContext[..., Any]", *, until: int) -> Any:
    if context.attempt < until:
        raise OSError("not yet")
    return [context.attempt, context.task_result.id]


@task(takes_context=True)
def about(context: "TaskContext[..., Any]") -> Any:
    its = context.task_result.task
    return [its.priority, its.run_after and its.run_after.isoformat()]


class Place:
    class DoesNotExist(ObjectDoesNotExist):
        """Exception nested in a class, as those of models are."""


ERRORS = {
    "discard": Discard("no such user"),
    "retry": Retry(reason="example.com: refused"),
    "missing": Place.DoesNotExist("no place"),
    "value": ValueError("no luck"),
}


@task
def end(how: str) -> None:
    raise ERRORS[how]
