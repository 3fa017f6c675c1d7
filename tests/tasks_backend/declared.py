"""Tasks of a project, which the fixture `tasks` imports once it has set `TASKS`."""

import time
from datetime import timedelta
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ObjectDoesNotExist

from pulljobs.errors import Discard, Retry, Snooze
from pulljobs.tasks_backend import task_options
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
    "snooze": Snooze(timedelta(hours=1)),
    "retry": Retry(reason="example.com: refused"),
    "missing": Place.DoesNotExist("no place"),
    "value": ValueError("no luck"),
}


@task
def end(how: str) -> None:
    raise ERRORS[how]


ANSWERS: Any = {"object": object(), "large": "x" * 2**15, "deep": []}
ANSWERS["deep"].append(ANSWERS["deep"])


@task
def answer(how: str) -> Any:
    return ANSWERS[how]


@task
@task_options(max_retries=4, retry_strategy="constant:0")
def try_often() -> None:
    raise OSError("still down")


@task_options(max_retries=0)
@task
def try_once() -> None:
    raise OSError("still down")


@task
@task_options(retry_strategy="constant:500")
def wait_long(after: float | None = None) -> None:
    raise Retry(after=None if after is None else timedelta(seconds=after))


@task
@task_options(timeout=timedelta(seconds=0.5), max_retries=0)
def linger() -> None:
    """Run for a minute, which is longer than the time limit of the task."""
    time.sleep(60)
