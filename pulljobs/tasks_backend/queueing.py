"""Enqueueing: a task and its arguments as a message."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django.db import transaction

from pulljobs import handlers, ids
from pulljobs.conf import settings
from pulljobs.errors import UnknownChannel
from pulljobs.models import Consumer, Job
from pulljobs.publishing import Receipt, publish
from pulljobs.tasks_backend import results, running
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
    }
    with transaction.atomic(using=settings().DATABASE):
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
    wishes: dict[str, Any] = {"priority": task.priority, "available_at": task.run_after}
    try:
        found = _own(channel, publish(channel, content, **wishes))
    except UnknownChannel:
        found = None
    if found is None:
        running.register(backend)
        handlers.subscribed(next(one for one in handlers.registered() if one.channel == channel))
        found = _own(channel, publish(channel, content, **wishes))
    assert found is not None
    return found


def _own(channel: str, receipt: Receipt) -> int | None:
    if len(receipt.job_ids) < 2:
        return next(iter(receipt.job_ids), None)
    using = settings().DATABASE
    ours = Consumer.objects.using(using).filter(channel__name=channel, name=CONSUMER)
    jobs = Job.objects.using(using).filter(consumer_id__in=ours.values("id"))
    return jobs.filter(id__in=receipt.job_ids).values_list("id", flat=True).first()
