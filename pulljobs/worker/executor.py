"""Executor: runs the handler of a claimed job and decides the outcome of the job."""

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from asgiref.sync import async_to_sync, sync_to_async

from pulljobs import pulling
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.circuit import Result
from pulljobs.engine.error_texts import format_error, format_reason
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.telemetry import HandlerSilent, JobFailed, emit
from pulljobs.errors import (
    AlreadySettled,
    ChildFailed,
    Discard,
    LeaseLost,
    PulljobsError,
    Retry,
    Snooze,
    WaitTimedOut,
)
from pulljobs.handlers import AckPolicy, ClaimedJob
from pulljobs.outcome_texts import clean, encoded
from pulljobs.states import Event
from pulljobs.storage.plans import keeping_plans
from pulljobs.storage.rows import Finished
from pulljobs.worker import fork_guard, transactions
from pulljobs.worker.runs import CancelReason, HandlerRun, end_now

ACK_FIRST: Final = AckPolicy.ACK_FIRST
MANUAL: Final = AckPolicy.MANUAL


def perform(job: ClaimedJob) -> Settlement | None:
    """Run the handler. Return the outcome to write, or None if it is written or the lease is lost.

    Whatever a handler raises is the outcome of its job, even `sys.exit()` and KeyboardInterrupt, so
    that its thread survives. Only in the main thread, where Ctrl-C raises it, a KeyboardInterrupt
    is raised again.
    """
    handler = job.handler
    if handler.is_async:
        return async_to_sync(aperform)(job)
    if handler.ack_policy is ACK_FIRST:
        if (outcome := _settle_first(job)) is None and not job.taken_away:
            _run_settled(job)
        return outcome
    try:
        if not handler.transactional:
            return _outcome_of_return(job, _run(handler.function, job))
        _run_in_transaction(job)
    except (LeaseLost, AlreadySettled) as error:
        return _outcome_of_loss(job, error)
    except BaseException as error:
        if _is_ctrl_c(error):
            raise
        return _outcome_of_error(job, error)
    return None


async def aperform(job: ClaimedJob) -> Settlement | None:
    """Run an async handler as a task. Return the outcome to write, or None as `perform` does.

    Once the handler is called this raises nothing, because other tasks share the event loop. An
    exception of a run that the worker has cancelled results in None.
    """
    if job.handler.ack_policy is AckPolicy.ACK_FIRST:
        if (outcome := await sync_to_async(_settle_first)(job)) is None and not job.taken_away:
            await _arun_settled(job)
        return outcome
    try:
        return _outcome_of_return(job, await _arun(job))
    except (LeaseLost, AlreadySettled) as error:
        return _outcome_of_loss(job, error)
    except BaseException as error:
        if job.taken_away:
            return None  # The worker cancelled the run, and decides its outcome elsewhere.
        if job.lost and isinstance(error, asyncio.CancelledError):
            # Cut off from the database: see `LoopTasks.cut_off`.
            return _reported(job) or outcomes.release(job.held)
        return _outcome_of_error(job, error)


def outcome_of_cancelled(run: HandlerRun) -> Settlement | None:
    """Return the outcome to write for a cancelled run.

    What the handler reported by a call counts. Return None if the lease is lost, or the job was
    delivered before its run (ACK_FIRST).
    """
    job = run.job
    if run.cancel_reason is CancelReason.LOST:
        return None
    if job.begun_at is None:  # Cancelled before its handler was called, so not charged.
        return outcomes.release(job.held)
    if job.handler.ack_policy is ACK_FIRST:
        return None
    if (reported := _reported(job)) is not None:
        return reported
    if run.cancel_reason is CancelReason.STOPPED:
        return outcomes.release(job.held)
    if run.cancel_reason is CancelReason.BLOCKED:
        error = f"ran for {run.seconds:.1f} s while the event loop was blocked"
        return job.limited(outcomes.suspect(job.held, error))
    error = f"TimeoutError: ran for {run.seconds:.1f} s, over its timeout"
    return job.limited(outcomes.time_out(job.held, error))


def _outcome_of_loss(job: ClaimedJob, error: LeaseLost | AlreadySettled) -> Settlement | None:
    """Return the outcome to write for a job that its handler has settled, or knows to be lost.

    If the lease is lost by the clock of this process alone, the database may be out of reach: it is
    what the handler reported, or a release. Otherwise it is None. LeaseLost of another job, which a
    client raises that the handler uses, is an error like any other.
    """
    if isinstance(error, LeaseLost):
        if error.job != job.id:
            return _outcome_of_error(job, error)
        if job.lost and not job.taken_away:
            return _reported(job) or outcomes.release(job.held)
        job.taken_away = True
    return None


def _is_ctrl_c(error: BaseException) -> bool:
    """Return True for a KeyboardInterrupt in the main thread, where Ctrl-C raises it."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and isinstance(error, KeyboardInterrupt)


def _run(function: Callable[[ClaimedJob], Any], job: ClaimedJob) -> Any:
    """Call the handler. If the handler has forked, end the copy before it settles anything."""
    try:
        return function(job)
    finally:
        if fork_guard.is_forked:
            fork_guard.exit_copy()


async def _arun(job: ClaimedJob) -> Any:
    try:
        return await job.handler.function(job)
    finally:
        if fork_guard.is_forked:
            fork_guard.exit_copy()


def _settle_first(job: ClaimedJob) -> Settlement | None:
    """Deliver the job before its run (ACK_FIRST). Return the outcome to write if it can't start.

    With None the lease is lost if `job.taken_away` is True, and otherwise the handler may run.
    """
    try:
        finished = _finish(job, outcomes.deliver(job.held, run=job))
    except Exception as error:
        # Not started, so not charged. If the delivery was written all the same, the release
        # changes nothing.
        _emit_failure(job, error)
        return outcomes.release(job.held)
    if finished.locked:
        return outcomes.release(job.held)  # Not lost: the flusher repeats this until it is written.
    job.taken_away = job.id not in finished.states
    if not job.taken_away:
        job.mark_settled()
    return None


def _run_settled(job: ClaimedJob) -> None:
    try:
        _run(job.handler.function, job)
        job.verdict = Result.SUCCESS
    except BaseException as error:
        if _is_ctrl_c(error):
            raise
        job.verdict = _result_of_error(error)
        _throttle(job, error)
        _emit_failure(job, error)


async def _arun_settled(job: ClaimedJob) -> None:
    try:
        await _arun(job)
        job.verdict = Result.SUCCESS
    except BaseException as error:
        job.verdict = _result_of_error(error)
        _throttle(job, error)
        _emit_failure(job, error)


def _run_in_transaction(job: ClaimedJob) -> None:
    """Run the handler and settle in one transaction: both are committed, or neither.

    A second database commits just before: see `transactions.atomic`.
    """
    with transactions.committing(partial(_emit_failure, job)) as check:
        outcome = _outcome_of_return(job, _run(job.handler.function, job))
        check()
        if job.taken_away:  # Lost, or over its time limit: another outcome is about to be written.
            raise LeaseLost(job.id)
        end_now(job)
        with keeping_plans(settings().DATABASE):
            finished = _finish(job, outcome._replace(run=job))
        if job.id in finished.refused:
            raise PulljobsError(f"The outcome can't be written: {finished.refused[job.id]}")
        if job.id not in finished.states:
            raise LeaseLost(job.id)
        job.verdict = Result.FAILURE if outcome.event is Event.RETRY else Result.SUCCESS
        # Before the commit: a renewal right after it would find no lease and report it lost.
        job.mark_settled()
    if outcome.event is Event.RETRY:
        job.went_to = finished.states[job.id]


def _finish(job: ClaimedJob, outcome: Settlement) -> Finished:
    return pulling.finish([outcome], lambda: {job.id: job.handler.names})


def _outcome_of_return(job: ClaimedJob, result: Any) -> Settlement:
    """Return the first outcome that the handler reported, or else that of its return value.

    With MANUAL, raise Retry if it reported none. Raise an error if its result can't be stored.
    """
    if job.settlement is not None:
        return job.settlement
    if job.handler.ack_policy is MANUAL:
        if not job.taken_away:
            emit(HandlerSilent(job.id, *job.handler.names))
        raise Retry(reason="the handler called neither ack, nack nor reject")
    return outcomes.deliver(job.held, None if result is None else encoded(result), job)


def _outcome_of_error(job: ClaimedJob, error: BaseException) -> Settlement:
    """Return the outcome that `_reported` finds, or else that of the handler's exception."""
    _throttle(job, error)
    if (reported := _reported(job)) is not None:
        return reported
    job.verdict = _result_of_error(error)
    if isinstance(error, Retry):
        return job.limited(outcomes.retry(job.held, clean(format_reason(error)), after=error.after))
    if isinstance(error, Snooze):
        reason = clean(format_reason(error))
        return outcomes.release(job.held, after=error.after, started=True, error=reason)
    if isinstance(error, Discard):
        return outcomes.reject(job.held, clean(format_reason(error)))
    _emit_failure(job, error)
    return job.limited(_BY_POLICY[job.handler.ack_policy](job, clean(format_error(error))))


def _result_of_error(error: BaseException) -> Result:
    """Return the result that the circuit counts for an exception of a handler."""
    if isinstance(error, Retry):
        return Result.FAILURE if error.backoff else Result.NEUTRAL
    if isinstance(error, Snooze | WaitTimedOut | ChildFailed):
        return Result.NEUTRAL  # Nothing that the consumer depends on has failed.
    return Result.SUCCESS if isinstance(error, Discard) else Result.FAILURE


def _throttle(job: ClaimedJob, error: BaseException) -> None:
    """Throttle the consumer or the key if the handler asked for it with its retry."""
    if isinstance(error, Retry) and error.throttle and error.after is not None:
        job.throttle(error.after, key=error.throttle == "key")


def _reported(job: ClaimedJob) -> Settlement | None:
    """Return the outcome that a failed handler reported by a call, or None if there is none.

    A delivery does not count if the rollback of a transactional handler has undone it.
    """
    settlement = job.settlement
    is_delivery = settlement is not None and settlement.event is Event.DELIVER
    return None if job.handler.transactional and is_delivery else settlement


_BY_POLICY: dict[AckPolicy, Callable[[ClaimedJob, str], Settlement]] = {
    AckPolicy.NACK_ON_ERROR: lambda job, error: outcomes.retry(job.held, error),
    AckPolicy.REJECT_ON_ERROR: lambda job, error: outcomes.reject(job.held, error),
    AckPolicy.ACK: lambda job, error: outcomes.deliver(job.held),
    AckPolicy.MANUAL: lambda job, error: outcomes.retry(job.held, error),
}


def _emit_failure(job: ClaimedJob, error: BaseException) -> None:
    """Set `job.failure` to the name of the error's class, and emit an event with it.

    The event lacks the text of the error, which may quote a payload. Nothing is emitted after a
    cancellation or the loss of the lease.
    """
    job.failure = type(error).__name__
    if not job.taken_away:
        emit(JobFailed(job.id, *job.handler.names, job.failure))
