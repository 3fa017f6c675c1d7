"""Handlers of workflows: load a run, call its function, and write how the claim ends."""

import asyncio
import logging
from typing import Any, Final, NoReturn

from asgiref.sync import sync_to_async

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.errors import AlreadySettled, Discard, LeaseLost, SuspensionSwallowed
from pulljobs.handlers import ClaimedJob
from pulljobs.workflows.async_runs import AsyncRun
from pulljobs.workflows.context import RunContext
from pulljobs.workflows.definitions import Workflow
from pulljobs.workflows.loading import begin_run
from pulljobs.workflows.replay import (
    Continuation,
    Interruption,
    Replay,
    Suspension,
    find_caller,
)
from pulljobs.workflows.runs import Run
from pulljobs.workflows.storing import RunStore

logger = logging.getLogger("pulljobs.workflows")

SHOWN: Final = 10


def perform_run(workflow: Workflow, job: ClaimedJob, **hooks: Any) -> Any:
    """Call a workflow's function for one claim of a run, and return the result of the run.

    The handler of the workflow calls this. Raise AlreadySettled if the run was suspended, or left
    to workers with other code.
    """
    context = load(workflow, job, **hooks)
    context.replay.main = find_caller()
    try:
        result = workflow.function(Run(context))
    except BaseException as error:
        return end_claim(context, error)
    return end_claim(context, None, result)


async def aperform_run(workflow: Workflow, job: ClaimedJob, **hooks: Any) -> Any:
    """Call an async workflow's function for one claim of a run. See `perform_run`.

    If the function raises an Exception or suspends the run, running steps of other asyncio tasks
    end before the claim does.
    """
    context = await sync_to_async(load)(workflow, job, **hooks)
    context.replay.main = find_caller()
    try:
        result = await workflow.function(AsyncRun(context))
    except BaseException as error:
        has_ending = context.replay.ending is not None
        while context.running and (has_ending or isinstance(error, Exception)):
            await asyncio.wait(context.running)
        if not has_ending:
            raise
        return await sync_to_async(end_claim)(context, error)
    return await sync_to_async(end_claim)(context, None, result)


def load(workflow: Workflow, job: ClaimedJob, **hooks: Any) -> RunContext:
    """Insert the run at its first claim, read its steps, and return the context of the claim.

    `hooks` are passed to `RunStore`. A run of a version that this code does not accept is left to
    other workers, and AlreadySettled is raised.
    """
    using = settings().DATABASE
    begun = begin_run(using, job.held, workflow, job.message_id)
    store = RunStore(using, job, **hooks)
    if not workflow.oldest_version <= begun.version <= workflow.version:
        _leave(store, workflow, begun.version)
    for step in begun.taken:
        store.on_stored(job, step)
    return RunContext(
        job=job,
        workflow=workflow,
        replay=Replay.of_steps(begun.steps),
        store=store,
        version=begun.version,
        rounds=begun.rounds,
        is_continued=begun.is_continued,
        input=begun.input,
    )


def _leave(store: RunStore, workflow: Workflow, version: int) -> NoReturn:
    """Release a run for workers that accept its version, and raise AlreadySettled."""
    logger.info(
        "Run %s of %s has version %d: it is left to workers that accept it.",
        ids.encode(store.job.id), workflow.name, version,
    )  # fmt: skip
    store.leave()
    raise AlreadySettled


def end_claim(context: RunContext, error: BaseException | None, result: Any = None) -> Any:
    """Return the result of a run that is done, or raise the exception that ends its claim.

    `error` is the exception of the workflow's function. A suspension is written here, and then
    AlreadySettled is raised, unless another task has failed. If the function caught the suspension
    and ended in another way, Discard is raised, which makes the run DEAD.
    """
    ending = context.replay.ending
    if isinstance(ending, Interruption):
        _interrupt(context, ending)
    has_ending, failure = _split(error)
    is_swallowed = ending is not None and (context.replay.is_swallowed or not has_ending)
    if ending is not None and not is_swallowed and failure is None:
        context.store.end_claim(ending, context.workflow.version)
        raise AlreadySettled from None
    if isinstance(error, LeaseLost) or context.job.taken_away:
        raise error or LeaseLost(context.job.id)
    if is_swallowed:
        raise Discard(str(SuspensionSwallowed(str(ending)))) from error
    if failure is not None:
        raise failure
    _report_unknown(context)
    return result


def _interrupt(context: RunContext, ending: Interruption) -> NoReturn:
    """Fail the attempt with the error of an interruption, or end the claim with its outcome.

    Whatever the workflow caught or raised after it does not count.
    """
    if context.job.taken_away:
        raise LeaseLost(context.job.id)
    if isinstance(ending.cause, Exception):
        raise ending.cause
    context.job.settlement = ending.cause
    raise ending


def _split(error: BaseException | None) -> tuple[bool, BaseException | None]:
    """Return True if the error is or holds an ending of the claim, and the rest, or None."""
    if isinstance(error, BaseExceptionGroup):
        endings, rest = error.split((Suspension, Continuation, Interruption))
        return endings is not None, rest
    has_ending = isinstance(error, Suspension | Continuation | Interruption)
    return has_ending, None if has_ending else error


def _report_unknown(context: RunContext) -> None:
    if unknown := context.replay.unknown():
        names = ", ".join(str(step) for step in unknown[:SHOWN])
        logger.warning(
            "Run %s of %s ended without %d of its steps, which its code does not know: %s.",
            ids.encode(context.job.id), context.workflow.name, len(unknown), names,
        )  # fmt: skip
