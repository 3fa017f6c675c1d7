"""Enqueueing: a task and its arguments as a message."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.db import transaction

from pulljobs import handlers, ids
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError, UnknownChannel
from pulljobs.models import Job
from pulljobs.publishing import publish
from pulljobs.tasks_backend import handler, results
from pulljobs.tasks_backend.backend import CONSUMER
from pulljobs.tasks_backend.interface import AnyResult, AnyTask, TaskResultStatus, normalize_json

if TYPE_CHECKING:
    from pulljobs.tasks_backend import PullJobsBackend


def enqueue(
    backend: "PullJobsBackend", task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AnyResult:
    content: dict[str, Any] = {
        "task": task.module_path,
        "backend": task.backend,
        "queue": task.queue_name,
        "args": normalize_json(list(args)),
        "kwargs": normalize_json(dict(kwargs)),
        "priority": task.priority,
        "run_after": None if task.run_after is None else task.run_after.isoformat(),
    }
    job_id = _publish(backend, task, content)
    return results.made(
        task,
        content,
        id=ids.encode(job_id),
        status=TaskResultStatus.READY,
        enqueued_at=ids.time_of(job_id),
    )


def _publish(backend: "PullJobsBackend", task: AnyTask, content: dict[str, Any]) -> int:
    """The job of the tasks' own consumer, which the first task of a queue makes."""
    channel = backend.channel_of(task.queue_name)
    found = _published(channel, task, content)
    if found is None:
        handler.register(backend)
        own = (one for one in handlers.registered() if one.path == (channel, CONSUMER))
        handlers.subscribed(next(own))
        found = _published(channel, task, content)
    if found is None:
        raise ConfigurationError(
            f"The consumer {CONSUMER!r} of channel {channel!r} was deleted, so that nobody would "
            "run the task: restore it in the admin."
        )
    return found


def _published(channel: str, task: AnyTask, content: dict[str, Any]) -> int | None:
    """None, and nothing is published: that consumer is not there, whoever else is."""
    using = settings().DATABASE
    with transaction.atomic(using=using):
        try:
            receipt = publish(channel, content, priority=task.priority, available_at=task.run_after)
        except UnknownChannel:
            return None
        own = Job.objects.using(using).filter(consumer__name=CONSUMER, id__in=receipt.job_ids)
        found = own.values_list("id", flat=True).first()
        if found is None:
            transaction.set_rollback(True, using=using)
    return found
