"""Running handlers: from a claimed job to what becomes of it."""

import traceback
from collections.abc import Callable
from typing import Any, Final

from asgiref.sync import async_to_sync, sync_to_async

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.engine.circuit import Result
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.telemetry import HandlerSilent, JobFailed, emit
from pulljobs.errors import Discard, LeaseLost, PulljobsError, Retry
from pulljobs.handlers import AckPolicy, ClaimedJob
from pulljobs.outcome_texts import clean, encoded
from pulljobs.states import Event
from pulljobs.storage.rows import Finished
from pulljobs.worker import fork_guard, transactions
from pulljobs.worker.runs import Ended, Run

ACK_FIRST: Final = AckPolicy.ACK_FIRST
MANUAL: Final = AckPolicy.MANUAL


def perform(job: ClaimedJob) -> Settlement | None:
    """Run the handler; what to write for it, or None where that is written already (or lost).

    Nothing but a KeyboardInterrupt gets out, so that a thread outlives a handler's `sys.exit()`.
    """
    handler = job.handler
    if handler.is_async:
        return async_to_sync(aperform)(job)
    if handler.ack_policy is ACK_FIRST:
        if (word := _settle_first(job)) is None and not job.taken_away:
            _run_settled(job)
        return word
    try:
        if not handler.transactional:
            return _said(job, _run(handler.function, job))
        _transactional(job)
    except LeaseLost:
        job.taken_away = True
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _after(job, error)
    return None


async def aperform(job: ClaimedJob) -> Settlement | None:
    """The same for an async handler, as a task; nothing gets out, for the loop has others."""
    if job.handler.ack_policy is AckPolicy.ACK_FIRST:
        if (word := await sync_to_async(_settle_first)(job)) is None and not job.taken_away:
            await _arun_settled(job)
        return word
    try:
        return _said(job, await _arun(job))
    except LeaseLost:
        job.taken_away = True
    except BaseException as error:
        # Where the run was cancelled nobody asks for its word; else the cancelling was its own.
        return None if job.taken_away else _after(job, error)
    return None


def word_for(run: Run) -> Settlement | None:
    """What to write for a run that was cancelled; None: nothing."""
    job = run.job
    if run.ended is Ended.LOST or job.handler.ack_policy is AckPolicy.ACK_FIRST:
        return None
    if job.settlement is not None and not _was_rolled_back(job.settlement, job):
        return job.settlement
    if run.ended is Ended.STOPPED:
        return outcomes.release(job.held)
    if run.ended is Ended.BLOCKED:
        error = f"ran for {run.seconds:.1f} s while the event loop stood still"
        return outcomes.suspect(job.held, error)
    return outcomes.time_out(job.held, f"ran for {run.seconds:.1f} s, over its timeout")


def _run(function: Callable[[ClaimedJob], Any], job: ClaimedJob) -> Any:
    """What the handler returns; a copy that it forked ends here, and says and undoes nothing."""
    try:
        return function(job)
    finally:
        if fork_guard.is_one:
            fork_guard.leave()


async def _arun(job: ClaimedJob) -> Any:
    try:
        return await job.handler.function(job)
    finally:
        if fork_guard.is_one:
            fork_guard.leave()


def _settle_first(job: ClaimedJob) -> Settlement | None:
    """What to write instead of running it; or None, and if it is not taken away it may run."""
    try:
        settled = job.id in _finished(job, outcomes.deliver(job.held)).states
    except Exception as error:
        # Not started, so not charged; if the delivery landed all the same, nothing is released.
        _tell(job, error)
        return outcomes.release(job.held)
    job.taken_away = not settled
    if settled:
        job.mark_settled()
    return None


def _run_settled(job: ClaimedJob) -> None:
    try:
        _run(job.handler.function, job)
        job.verdict = Result.SUCCESS
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        job.verdict = _verdict(error)
        _tell(job, error)


async def _arun_settled(job: ClaimedJob) -> None:
    try:
        await _arun(job)
        job.verdict = Result.SUCCESS
    except BaseException as error:
        job.verdict = _verdict(error)
        _tell(job, error)


def _transactional(job: ClaimedJob) -> None:
    """The handler's writes and the settle together: both, or neither."""
    with transactions.together():
        word = _said(job, _run(job.handler.function, job))
        transactions.check()
        finished = _finished(job, word)
        if job.id in finished.refused:
            raise PulljobsError(f"The outcome can't be written: {finished.refused[job.id]}")
        if job.id not in finished.states:
            raise LeaseLost(job.id)
        job.verdict = Result.FAILURE if word.event is Event.RETRY else Result.SUCCESS
        # Before the commit: a renewal right after it would find nothing, and call the lease lost.
        job.mark_settled()
    if word.event is Event.RETRY:
        job.went_to = finished.states[job.id]


def _finished(job: ClaimedJob, word: Settlement) -> Finished:
    return pulling.finish([word], lambda: {job.id: job.handler.path})


def _said(job: ClaimedJob, result: Any) -> Settlement:
    """The handler's first word, or else what its return means."""
    if job.settlement is not None:
        return job.settlement
    if job.handler.ack_policy is MANUAL:
        if not job.taken_away:
            emit(HandlerSilent(job.id, *job.handler.path))
        raise Retry(reason="the handler called neither ack, nack nor reject")
    return outcomes.deliver(job.held, None if result is None else encoded(result))


def _after(job: ClaimedJob, error: BaseException) -> Settlement:
    if job.settlement is not None and not _was_rolled_back(job.settlement, job):
        return job.settlement
    job.verdict = _verdict(error)
    if isinstance(error, Retry):
        return outcomes.retry(job.held, clean(str(error)), after=error.after)
    if isinstance(error, Discard):
        return outcomes.reject(job.held, clean(str(error)))
    _tell(job, error)
    return _BY_POLICY[job.handler.ack_policy](job, clean(_traceback(error)))


def _verdict(error: BaseException) -> Result:
    """What a handler that raised tells of the next job."""
    if isinstance(error, Retry):
        return Result.FAILURE if error.backoff else Result.NEUTRAL
    return Result.SUCCESS if isinstance(error, Discard) else Result.FAILURE


def _was_rolled_back(settlement: Settlement, job: ClaimedJob) -> bool:
    """A job is not delivered without the effects that belong to it."""
    return job.handler.transactional and settlement.event is Event.DELIVER


_BY_POLICY: dict[AckPolicy, Callable[[ClaimedJob, str], Settlement]] = {
    AckPolicy.NACK_ON_ERROR: lambda job, error: outcomes.retry(job.held, error),
    AckPolicy.REJECT_ON_ERROR: lambda job, error: outcomes.reject(job.held, error),
    AckPolicy.ACK: lambda job, error: outcomes.deliver(job.held),
    AckPolicy.MANUAL: lambda job, error: outcomes.retry(job.held, error),
}


def _tell(job: ClaimedJob, error: BaseException) -> None:
    """The kind of error only: its text may quote a payload, and this goes to a log.

    Nothing of a run that was ended: who ended it has told of that.
    """
    if not job.taken_away:
        emit(JobFailed(job.id, *job.handler.path, type(error).__name__))


def _traceback(error: BaseException) -> str:
    """The error first, for lists that show one line, then where it came from."""
    # A SyntaxError's text starts with the indented place of the error.
    said = next(line for line in traceback.format_exception_only(error) if not line.startswith(" "))
    return "".join([said, "\n", *traceback.format_exception(error)])
