"""Enqueueing of tasks: a task and its arguments become a message."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from pulljobs import handlers
from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError, InvalidMessage, UnknownChannel
from pulljobs.models import Job
from pulljobs.publishing import encoded, publish
from pulljobs.tasks_backend import handler, results
from pulljobs.tasks_backend.interface import (
    CONSUMER,
    AnyResult,
    AnyTask,
    ChannelBackend,
    normalize_json,
)


def enqueue(
    backend: ChannelBackend, task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> AnyResult:
    """Publish the task in the caller's transaction, and return its result, with status READY."""
    content = make_content(task, args, kwargs)
    return results.ready_result(task, content, _publish(backend, task, content))


def make_content(task: AnyTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the payload of a task, with its arguments as the task will get them.

    Raise TypeError or ValueError if an argument can't be stored as JSON.
    """
    return {
        "task": task.module_path,
        "backend": task.backend,
        "queue": task.queue_name,
        "args": _as_stored(list(args)),
        "kwargs": _as_stored(dict(kwargs)),
        "priority": int(task.priority),  # A task may have a float such as 5.0.
        "run_after": None if task.run_after is None else task.run_after.isoformat(),
    }


def _as_stored(arguments: Any) -> Any:
    """Return arguments encoded as JSON and decoded again, which makes text of all keys."""
    try:
        return json.loads(encoded(normalize_json(arguments))[0])
    except RecursionError as error:
        raise InvalidMessage(
            f"The arguments of a task can't be encoded ({error}): use fewer levels, or an id."
        ) from error


def subscribe(backend: ChannelBackend, queue: str) -> str:
    """Create channel and consumer of a queue if they are missing. Return the channel's name."""
    channel = backend.channel_of(queue)
    handler.register(backend)
    own = (each for each in handlers.registered() if each.names == (channel, CONSUMER))
    handlers.subscribed(next(own))
    return channel


def _publish(backend: ChannelBackend, task: AnyTask, content: dict[str, Any]) -> int:
    """Publish a task and return its job's id. Create the queue's consumer if it is missing."""
    channel = backend.channel_of(task.queue_name)
    job_id = _try_to_publish(channel, task, content)
    if job_id is None:
        subscribe(backend, task.queue_name)
        job_id = _try_to_publish(channel, task, content)
    return require_job(job_id, channel)


def require_job(job_id: int | None, channel: str) -> int:
    """Return the id of a task's job. Raise ConfigurationError if None: its publish made no job."""
    if job_id is None:
        raise ConfigurationError(
            f"The consumer {CONSUMER!r} of channel {channel!r} was deleted, so no worker would run "
            "the task: restore the consumer in the admin."
        )
    return job_id


def _try_to_publish(channel: str, task: AnyTask, content: dict[str, Any]) -> int | None:
    """Publish a task and return its job's id.

    Publish nothing and return None if the queue has no consumer.
    """
    using = settings().DATABASE
    with transaction.atomic(using=using):
        try:
            receipt = publish(
                channel, content, priority=content["priority"], available_at=task.run_after
            )
        except UnknownChannel:
            return None
        own = Job.objects.using(using).filter(consumer__name=CONSUMER, id__in=receipt.job_ids)
        job_id = own.values_list("id", flat=True).first()
        if job_id is None:
            transaction.set_rollback(True, using=using)
    return job_id
