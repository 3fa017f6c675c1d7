"""Handler that runs the tasks of all queues of the backends."""

from typing import Any, Final

from django.utils import timezone

from pulljobs import handlers, ids
from pulljobs.engine.circuit import task_of
from pulljobs.errors import ConfigurationError, Discard, LeaseLost, Retry
from pulljobs.handlers import AckPolicy, ClaimedJob, Handler
from pulljobs.tasks_backend import results
from pulljobs.tasks_backend.interface import (
    CONSUMER,
    AnyResult,
    ChannelBackend,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)

RESERVED: Final = "on_giving_up"
"""Keyword that the backend needs itself, to send `task_finished`."""
KEYWORDS: Final = frozenset(handlers.handler.__kwdefaults__ or ()) - {RESERVED}
"""OPTIONS that are for the handler. All others are fields of the consumer."""


def register(backend: ChannelBackend) -> None:
    """Register a handler for each queue of the backend."""
    for queue in sorted(backend.queues):
        handlers.add(make_handler(backend, queue))


def make_handler(backend: ChannelBackend, queue: str) -> Handler:
    """Return the handler of a queue. Unsuitable OPTIONS raise TypeError or ConfigurationError."""
    if RESERVED in backend.options:
        raise ConfigurationError(f"The backend uses {RESERVED} itself: leave it out of OPTIONS.")
    own, defaults = dict[str, Any](), dict[str, Any]()
    for name, value in {**backend.options}.items():
        (own if name in KEYWORDS else defaults)[name] = value
    return Handler(
        channel=backend.channel_of(queue),
        consumer=CONSUMER,
        function=run,
        on_giving_up=give_up,
        task_of=task_of,
        defaults=defaults,
        **own,
    )


def run(job: ClaimedJob) -> Any:
    """Run the task of a job, and return its value, which becomes the result of the job."""
    content = job.json()
    task = results.task_of(content)
    begun = timezone.now()
    result = results.new_result(
        task,
        content,
        id=ids.encode(job.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=job.published_at,
        started_at=begun,
        last_attempted_at=begun,
        worker_ids=_workers(job),
    )
    task_started.send(type(task.get_backend()), task_result=result)
    try:
        value = _call_task(result)
    except BaseException as error:
        if _gives_up(job, error):
            results.fail(result, error)
            _send_finished(job, result)
        raise
    results.succeed(result, value)
    _send_finished(job, result)
    return value


def give_up(job: ClaimedJob) -> None:
    """Send `task_finished` for a job that died because its retries were used up."""
    backend = results.task_of(job.json()).get_backend()
    task_finished.send(type(backend), task_result=backend.get_result(ids.encode(job.id)))


def _workers(job: ClaimedJob) -> list[str]:
    # A job that is settled before it runs has no lease any more.
    first = results.first_worker(job.held.lease_token) if job.deliveries == 1 else []
    return first or results.workers(job.id, job.deliveries)


def _call_task(result: AnyResult) -> Any:
    task = result.task
    context: list[Any] = [TaskContext(task_result=result)] if task.takes_context else []
    return normalize_json(task.call(*context, *result.args, **result.kwargs))


def _gives_up(job: ClaimedJob, error: BaseException) -> bool:
    """Return True if the job dies by this error itself, so that no worker calls `give_up`.

    False for a transactional handler: the rollback would undo the writes of signal receivers.
    """
    if job.handler.transactional:
        return False
    if isinstance(error, Discard):
        return job.handler.ack_policy is not AckPolicy.ACK_FIRST
    follows_policy = not isinstance(error, (Retry, LeaseLost, KeyboardInterrupt))
    return follows_policy and job.handler.ack_policy is AckPolicy.REJECT_ON_ERROR


def _send_finished(job: ClaimedJob, result: AnyResult) -> None:
    """Send `task_finished`. An error of a receiver fails the task only in a transaction.

    There a rollback undoes the writes of the task together with those of the receiver.
    """
    send = task_finished.send if job.handler.transactional else task_finished.send_robust
    send(type(result.task.get_backend()), task_result=result)
