"""Ends of a claim in the middle of a step: a failed write, a time limit, a worker that stops.

The code of the workflow must not take them for failures of the step, which it may catch.
"""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import InterfaceError, InternalError, OperationalError

from pulljobs.engine import outcomes
from pulljobs.engine.telemetry import JobTimedOut, emit
from pulljobs.errors import AlreadySettled, LeaseLost, Retry, Snooze
from pulljobs.workflows.effects import Operation, StoreCall, UserCall
from pulljobs.workflows.replay import Interruption, Step

if TYPE_CHECKING:
    from pulljobs.workflows.context import RunContext


def call_store(context: "RunContext", function: Callable[[], Any]) -> Operation:
    """Call a function that reads or writes for the run, and return its result.

    If the database can't do it, such as while it restarts or is read-only, the attempt fails.
    """
    try:
        return (yield StoreCall(function))
    except (InterfaceError, InternalError, OperationalError) as error:
        context.replay.raise_ending(Interruption(error))


@contextmanager
def noting_failure(context: "RunContext", step: Step) -> Iterator[None]:
    """Keep an exception of the block as a step's failure, to store if the workflow catches it.

    Retry, Snooze, AlreadySettled, LeaseLost and CancelledError are no failures.
    """
    began = time.monotonic()
    try:
        yield
    except (Retry, Snooze, AlreadySettled, LeaseLost, asyncio.CancelledError):
        context.replay.end(step)
        raise
    except Exception as error:
        context.replay.fail(step, error, time.monotonic() - began)
        raise
    except Interruption as ending:
        context.replay.raise_ending(ending)


@contextmanager
def ending_claim(context: "RunContext") -> Iterator[None]:
    """End the claim with an Interruption that leaves the block of a step which ended before."""
    try:
        yield
    except Interruption as ending:
        context.replay.raise_ending(ending)


def check_time(context: "RunContext", call: UserCall, began: float) -> None:
    """End the claim as timed out if a call in a sync run took longer than its timeout.

    The worker has cancelled it then, unless it looks a moment later. A test has no worker.
    """
    seconds, job = time.monotonic() - began, context.job
    is_over = call.timeout is not None and seconds >= call.timeout.total_seconds()
    if not is_over or context.workflow.is_async:  # An async run raises TimeoutError in the step.
        return
    if job.taken_away:
        raise LeaseLost(job.id)
    emit(JobTimedOut(job.id, *job.handler.names, seconds))
    error = f"TimeoutError: step {call.step} ran for {seconds:.1f} s, over its timeout"
    context.replay.raise_ending(Interruption(job.limited(outcomes.time_out(job.held, error))))


def release_if_stopping(context: "RunContext") -> None:
    """Release the run if its worker stops, so that another worker calls the failed step again."""
    if context.job.stopping:
        error = "the worker stops, and the step has retries left"
        outcome = outcomes.release(context.job.held, started=True, error=error)
        context.replay.raise_ending(Interruption(outcome))
