"""Handler that runs Django tasks, and decides what their results and exceptions mean."""

import json
from collections.abc import Mapping
from typing import Any, Final

from django.utils import timezone

from pulljobs import handlers, ids
from pulljobs.engine.circuit import task_of
from pulljobs.engine.error_texts import format_error
from pulljobs.errors import ConfigurationError, Discard, LeaseLost, Retry, Snooze
from pulljobs.handlers import AckPolicy, ClaimedJob, Handler
from pulljobs.outcome_texts import clean, encoded
from pulljobs.run_limits import RunLimits
from pulljobs.states import Reason
from pulljobs.tasks_backend import options, results
from pulljobs.tasks_backend.interface import (
    CONSUMER,
    AnyResult,
    AnyTask,
    ChannelBackend,
    TaskContext,
    TaskResultStatus,
    normalize_json,
    task_finished,
    task_started,
)

RESERVED: Final = "on_giving_up"
"""Keyword of `@handler` that OPTIONS can't have: the backend sends `task_finished` by it."""
KEYWORDS: Final = frozenset(handlers.handler.__kwdefaults__ or ()) - {RESERVED}
"""OPTIONS that are for the handler. All others are fields of the consumer."""


def register(backend: ChannelBackend) -> None:
    """Register a handler for each queue of the backend."""
    for queue in sorted(backend.queues):
        handlers.add(make_handler(backend, queue))


def make_handler(backend: ChannelBackend, queue: str) -> Handler:
    """Return the handler for a queue. Raise TypeError or ConfigurationError for wrong OPTIONS."""
    if RESERVED in backend.options:
        raise ConfigurationError(f"The backend uses {RESERVED} itself: leave it out of OPTIONS.")
    given = {**backend.options}  # TypeError if they are no mapping
    own = {name: value for name, value in given.items() if name in KEYWORDS}
    defaults = {name: value for name, value in given.items() if name not in KEYWORDS}
    made = Handler(
        channel=backend.channel_of(queue),
        consumer=CONSUMER,
        function=run,
        on_giving_up=give_up,
        task_of=task_of,
        limits_of=limits_of,
        defaults=defaults,
        **own,
    )
    if made.ack_policy is AckPolicy.MANUAL:
        raise ConfigurationError(
            "A task can't settle its job, so with ack_policy 'manual' no task would succeed: "
            "choose another policy, or leave it out of OPTIONS."
        )
    return made


def limits_of(payload: bytes) -> RunLimits:
    """Return the `@task_options` of the task that a payload names, empty if it names no task."""
    try:
        return options.limits_of(results.task_of(json.loads(payload)).func)
    except (KeyError, *results.NO_TASK):
        return options.NO_LIMITS


def run(job: ClaimedJob) -> Any:
    """Run the task of a job, and return its value, which becomes the result of the job."""
    content = job.json()
    task = results.task_of(content)
    result = _running(job, task, content)
    task_started.send(type(task.get_backend()), task_result=result)
    try:
        value = _call_task(result)
    except BaseException as error:
        if _gives_up(job, error):
            is_discarded = isinstance(error, Discard)
            text = clean(str(error) if is_discarded else format_error(error))
            results.fail(result, text, Reason.REJECTED if is_discarded else None)
            _send_finished(job, result)
        raise
    results.succeed(result, value)
    _send_finished(job, result)
    return value


def give_up(job: ClaimedJob) -> None:
    """Send `task_finished` for a job that died because its retries or deliveries were used up."""
    backend = results.task_of(job.json()).get_backend()
    task_finished.send(type(backend), task_result=backend.get_result(ids.encode(job.id)))


def _running(job: ClaimedJob, task: AnyTask, content: Mapping[str, Any]) -> AnyResult:
    begun = timezone.now()
    # A job that is settled before it runs has no lease any more.
    worker_ids = results.first_worker(job.held.lease_token) if job.deliveries == 1 else []
    runs = [] if worker_ids else results.read_runs(job.id, job.deliveries)
    return results.new_result(
        task,
        content,
        id=ids.encode(job.id),
        status=TaskResultStatus.RUNNING,
        enqueued_at=ids.time_of(job.id),
        started_at=runs[0].begun_at if len(runs) > 1 else begun,
        last_attempted_at=begun,
        errors=results.errors_of(runs),
        worker_ids=worker_ids or [run.worker_id for run in runs],
    )


def _call_task(result: AnyResult) -> Any:
    """Call the task and return its value, made of JSON types. Raise Discard if it can't be stored.

    Discard ends the job without a retry, because another run would return such a value again.
    """
    task = result.task
    context: list[Any] = [TaskContext(task_result=result)] if task.takes_context else []
    value = task.call(*context, *result.args, **result.kwargs)
    try:
        value = normalize_json(value)
        encoded(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise Discard(format_error(error)) from error
    return value


def _gives_up(job: ClaimedJob, error: BaseException) -> bool:
    """Return True if the error makes the job DEAD at once, so that `give_up` is not called for it.

    It is False for a transactional handler: receivers of `task_finished` would write into a
    transaction that is rolled back.
    """
    if job.handler.transactional:
        return False
    if isinstance(error, Discard):
        return job.handler.ack_policy is not AckPolicy.ACK_FIRST
    follows_policy = not isinstance(error, (Retry, Snooze, LeaseLost, KeyboardInterrupt))
    return follows_policy and job.handler.ack_policy is AckPolicy.REJECT_ON_ERROR


def _send_finished(job: ClaimedJob, result: AnyResult) -> None:
    """Send `task_finished`. An error of a receiver is only logged, except in a transaction.

    In a transactional handler the error rolls back the writes of both the task and the receiver.
    """
    send = task_finished.send if job.handler.transactional else task_finished.send_robust
    send(type(result.task.get_backend()), task_result=result)
