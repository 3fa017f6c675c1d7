"""Running handlers: from a claimed job to what becomes of it."""

import traceback
from collections.abc import Callable
from typing import Any

from django.db import transaction

from pulljobs import outcomes, pulling
from pulljobs.conf import settings
from pulljobs.errors import Discard, LeaseLost, Retry
from pulljobs.handlers import AckPolicy, ClaimedJob, encoded
from pulljobs.outcomes import Settlement
from pulljobs.telemetry import HandlerSilent, JobFailed, LeasesLost, emit


def perform(job: ClaimedJob) -> Settlement | None:
    """Run the handler; what to write for it, or None where that is written already (or lost)."""
    if job.handler.ack_policy is AckPolicy.ACK_FIRST and not _settled_first(job):
        return None
    try:
        result = _run(job)
    except LeaseLost:
        job.taken_away = True
        emit(LeasesLost(1))
        return None
    except Exception as error:
        return _after(job, error)
    if job.handler.ack_policy is AckPolicy.ACK_FIRST or job.handler.transactional:
        return None
    return job.settlement or _returned(job, result)


def _settled_first(job: ClaimedJob) -> bool:
    return job.id in pulling.finish([outcomes.deliver(job.held)]).states


def _run(job: ClaimedJob) -> Any:
    return _transactional(job) if job.handler.transactional else job.handler.function(job)


def _transactional(job: ClaimedJob) -> None:
    """The handler's writes and the settle in one transaction: both, or neither."""
    with transaction.atomic(using=settings().DATABASE):
        result = job.handler.function(job)
        settlement = job.settlement or outcomes.deliver(job.held, encoded(result))
        if job.id not in pulling.finish([settlement]).states:
            raise LeaseLost(job.id)


def _returned(job: ClaimedJob, result: Any) -> Settlement | None:
    if job.handler.ack_policy is AckPolicy.MANUAL:
        emit(HandlerSilent(job.id, job.handler.consumer))
        return outcomes.retry(job.held, "the handler called neither ack, nack nor reject")
    if result is None:
        return outcomes.deliver(job.held)
    try:
        return outcomes.deliver(job.held, encoded(result))
    except (TypeError, ValueError) as error:
        return _after(job, error)


def _after(job: ClaimedJob, error: Exception) -> Settlement | None:
    if job.handler.ack_policy is AckPolicy.ACK_FIRST:
        emit(JobFailed(job.id, job.handler.consumer, _name(error)))
        return None
    if job.settlement is not None and not job.handler.transactional:
        return job.settlement
    if isinstance(error, Retry):
        return outcomes.retry(job.held, clean(str(error)), after=error.after)
    if isinstance(error, Discard):
        return outcomes.reject(job.held, clean(str(error)))
    emit(JobFailed(job.id, job.handler.consumer, _name(error)))
    return _BY_POLICY[job.handler.ack_policy](job, clean(_traceback(error)))


_BY_POLICY: dict[AckPolicy, Callable[[ClaimedJob, str], Settlement]] = {
    AckPolicy.NACK_ON_ERROR: lambda job, error: outcomes.retry(job.held, error),
    AckPolicy.REJECT_ON_ERROR: lambda job, error: outcomes.reject(job.held, error),
    AckPolicy.ACK: lambda job, error: outcomes.deliver(job.held),
    AckPolicy.MANUAL: lambda job, error: outcomes.retry(job.held, error),
}


def _name(error: Exception) -> str:
    """The kind of error only: its text may quote a payload, and this goes to a log."""
    return type(error).__name__


def _traceback(error: Exception) -> str:
    """The error first, for lists that show one line, then where it came from."""
    lines = traceback.format_exception(error)
    return "".join([*traceback.format_exception_only(error), "\n", *lines])


def clean(text: str) -> str:
    """As PostgreSQL takes it, and cut in the middle where it is too long."""
    text = text.replace("\x00", "\N{REPLACEMENT CHARACTER}")
    text = text.encode("utf-8", "backslashreplace").decode()
    limit = settings().MAX_ERROR_CHARS
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
