"""Operations of sync and async runs: steps, sleeps and waits, as generators that `drive` runs."""

import random
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pulljobs.errors import HandlerSignal, LeaseLost, WaitTimedOut
from pulljobs.workflows.effects import Operation, Pause, StoreCall, UserCall
from pulljobs.workflows.failures import decode_failure
from pulljobs.workflows.interrupting import (
    call_store,
    check_time,
    noting_failure,
    release_if_stopping,
)
from pulljobs.workflows.replay import (
    FOREVER,
    Step,
    Suspension,
    check_delay,
    name_function,
)

if TYPE_CHECKING:
    from pulljobs.workflows.context import RunContext

SHORT: Final = 1.0
"""Seconds up to which a sleep keeps its thread."""
LONGEST_PAUSE: Final = 30.0
"""Longest pause before a step is tried again in the same claim."""


def begin(context: "RunContext", name: str, kind: str, function: str = "") -> Operation:
    """Store failures that the code caught, and return the next step of that name, stored or new."""
    if context.job.taken_away:
        raise LeaseLost(context.job.id)
    for each in context.replay.take_caught():
        write = partial(context.store.write, each.step, each.seconds, failure=each.error)
        yield from call_store(context, write)
    return context.replay.begin(name, kind, function)


def result_of(context: "RunContext", step: Step) -> Any:
    """Return the stored result of a step, or raise its stored exception again."""
    context.replay.end(step)
    if step.failure is None:
        return step.result
    if step.failure.get("timeout"):
        raise WaitTimedOut(step.name)
    raise decode_failure(step.name, step.failure)


def do_step(
    context: "RunContext",
    name: str,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: dict[str, Any],
    retries: int,
    timeout: timedelta | None,
) -> Operation:
    """Return the stored result of a step, or call its function and store the result."""
    _check_options(name, function, retries, timeout)
    step = yield from begin(context, name, "step", name_function(function))
    if step.is_ended:
        return result_of(context, step)
    context.store.before_effect(step)
    call = UserCall(step, partial(function, *args, **kwargs), context.job, timeout)
    began = time.monotonic()
    with noting_failure(context, step):
        result = yield from _try(context, call, retries)
        context.replay.check_swallowed()
        return (yield from store_result(context, step, began, result))


def _try(context: "RunContext", call: UserCall, retries: int) -> Operation:
    """Call the function, up to `retries` times again after exceptions that report no outcome."""
    for attempt in range(retries + 1):
        began = time.monotonic()
        try:
            result = yield call
        except (HandlerSignal, LeaseLost):
            raise
        except Exception:
            check_time(context, call, began)
            if attempt == retries or context.job.lost:
                raise
            release_if_stopping(context)
        else:
            check_time(context, call, began)
            return result
        yield from _pause(context, min(2**attempt, LONGEST_PAUSE) * random.uniform(0.75, 1.0))
        if context.job.lost:  # Another claim may have stored the result meanwhile.
            raise LeaseLost(context.job.id)
        release_if_stopping(context)
    raise AssertionError("A step has at least one attempt.")


def _pause(context: "RunContext", seconds: float) -> Operation:
    """Wait in the claim, unless a test lets time jump."""
    if context.store.can_pause:
        yield Pause(seconds)


def store_result(context: "RunContext", step: Step, began: float, result: Any) -> Operation:
    """Write the result of a step to its row, and return it as a replay will read it.

    `began` is the time of the monotonic clock at which the step began.
    """
    write = partial(context.store.write, step, time.monotonic() - began, result=result)
    stored = yield from call_store(context, write)
    context.replay.end(step)
    return stored


def do_sleep(context: "RunContext", name: str, until: timedelta | datetime) -> Operation:
    """Suspend the run for a time or until a time. A sleep of up to `SHORT` s keeps the claim."""
    step, wanted = (yield from begin(context, name, "sleep")), 0.0
    if not step.is_stored:
        if isinstance(until, datetime):
            until = yield from call_store(context, partial(context.store.time_until, until))
        wanted = check_delay(name, until).total_seconds()
        step.due = time.monotonic() + wanted
    left = max(0.0, (step.due or 0.0) - time.monotonic())
    if not step.is_ended and left > SHORT:
        context.store.refuse_transaction(f"sleep {step}")
        context.replay.raise_ending(Suspension(step, timedelta(seconds=left)))
    if not step.is_ended and left > 0:
        context.store.before_effect(step)
        yield from _pause(context, left)
    if not step.is_stored:
        return (yield from store_result(context, step, time.monotonic() - wanted, None))
    return result_of(context, step)


def check_aware(name: str, at: datetime) -> datetime:
    """Return the time of a step if it is aware, or raise ValueError."""
    if not isinstance(at, datetime) or at.utcoffset() is None:
        raise ValueError(f"The time of {name!r} must be an aware datetime, not {at!r}.")
    return at


def do_wait(context: "RunContext", name: str, timeout: timedelta | None) -> Operation:
    """Return the payload of the next signal of that name, or suspend the run until it is sent.

    Raise WaitTimedOut once `timeout` is over.
    """
    limit = None if timeout is None else check_delay(name, timeout).total_seconds()
    step = yield from begin(context, name, "wait")
    if step.is_ended:
        return result_of(context, step)
    if not step.is_stored and limit is not None:
        step.due = time.monotonic() + limit
    left = None if step.due is None else max(0.0, step.due - time.monotonic())
    take = partial(context.store.take_signal, step, left == 0)
    is_taken, payload = yield from call_store(context, take)
    if is_taken:
        context.replay.end(step)
        return payload
    if left == 0:
        context.replay.end(step)
        raise WaitTimedOut(name)
    context.replay.raise_ending(
        Suspension(
            step,
            FOREVER if left is None else timedelta(seconds=left),
            is_bounded=left is not None,
            waiting_for=name,
        )
    )


def do_once(
    context: "RunContext", name: str, kind: str, function: str, write: Callable[[Step], Any]
) -> Operation:
    """Return the stored result of a step, or call `write(step)`, which stores and returns it."""
    step = yield from begin(context, name, kind, function)
    if step.is_ended:
        return result_of(context, step)
    with noting_failure(context, step):
        result = yield StoreCall(partial(write, step))
    context.replay.end(step)
    return result


def _check_options(
    name: str, function: Callable[..., Any], retries: int, timeout: timedelta | None
) -> None:
    if not callable(function):
        raise TypeError(
            f"Step {name!r} needs a function, not {function!r}: pass the function and its "
            "arguments, without calling it."
        )
    if isinstance(retries, bool) or not isinstance(retries, int) or not 0 <= retries <= 100:
        raise ValueError(f"retries of {name!r} must be 0 to 100, not {retries!r}.")
    if timeout is not None and not (isinstance(timeout, timedelta) and timeout > timedelta()):
        raise ValueError(f"timeout of {name!r} must be a positive timedelta, not {timeout!r}.")
