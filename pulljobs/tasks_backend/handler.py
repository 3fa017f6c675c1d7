"""Running tasks: the handler of all queues of the backends."""

from typing import TYPE_CHECKING, Any, Final

from django.utils import timezone

from pulljobs import handlers, ids
from pulljobs.errors import ConfigurationError, Discard, LeaseLost, Retry
from pulljobs.handlers import AckPolicy, ClaimedJob, Handler
from pulljobs.tasks_backend import results
from pulljobs.tasks_backend.backend import CONSUMER
from pulljobs.tasks_backend.interface import (
    AnyResult,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)

if TYPE_CHECKING:
    from pulljobs.tasks_backend import PullJobsBackend


TAKEN: Final = "on_giving_up"
"""It tells what becomes of the task."""
KEYWORDS: Final = frozenset(handlers.handler.__kwdefaults__ or ()) - {TAKEN}
"""What OPTIONS may say of the handler; all else is of the consumer."""


def register(backend: "PullJobsBackend") -> None:
    for queue in sorted(backend.queues):
        handlers.add(handler_of(backend, queue))


def handler_of(backend: "PullJobsBackend", queue: str) -> Handler:
    """TypeError or ConfigurationError if OPTIONS don't allow one."""
    if TAKEN in backend.options:
        raise ConfigurationError(f"{TAKEN} is taken by the backend: leave it out.")
    own, defaults = dict[str, Any](), dict[str, Any]()
    for name, value in {**backend.options}.items():
        (own if name in KEYWORDS else defaults)[name] = value
    return Handler(
        channel=backend.channel_of(queue),
        consumer=CONSUMER,
        function=run,
        on_giving_up=give_up,
        defaults=defaults,
        **own,
    )


def run(job: ClaimedJob) -> Any:
    content = job.json()
    task = results.task_of(content)
    begun = timezone.now()
    result = results.made(
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
        value = _called(result)
    except BaseException as error:
        if _gives_up(job, error):
            results.fail(result, error)
            _finished(job, result)
        raise
    results.succeed(result, value)
    _finished(job, result)
    return value


def give_up(job: ClaimedJob) -> None:
    backend = results.task_of(job.json()).get_backend()
    task_finished.send(type(backend), task_result=backend.get_result(ids.encode(job.id)))


def _workers(job: ClaimedJob) -> list[str]:
    # One that is settled before it runs has no lease any more.
    first = results.first_worker(job.held.lease_token) if job.deliveries == 1 else []
    return first or results.workers(job.id, job.deliveries)


def _called(result: AnyResult) -> Any:
    task = result.task
    context: list[Any] = [TaskContext(task_result=result)] if task.takes_context else []
    return normalize_json(task.call(*context, *result.args, **result.kwargs))


def _gives_up(job: ClaimedJob, error: BaseException) -> bool:
    """Whether the job is dead for this error itself, so that nobody calls `give_up`.

    Not in a transaction, which is rolled back with all that receivers would write.
    """
    if job.handler.transactional:
        return False
    if isinstance(error, Discard):
        return job.handler.ack_policy is not AckPolicy.ACK_FIRST
    goes_by_policy = not isinstance(error, (Retry, LeaseLost, KeyboardInterrupt))
    return goes_by_policy and job.handler.ack_policy is AckPolicy.REJECT_ON_ERROR


def _finished(job: ClaimedJob, result: AnyResult) -> None:
    """The error of a receiver is not that of the task, unless it takes back what both wrote."""
    send = task_finished.send if job.handler.transactional else task_finished.send_robust
    send(type(result.task.get_backend()), task_result=result)
