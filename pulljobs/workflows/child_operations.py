"""Operations of a run on its child jobs: gather, start, result, as generators that `drive` runs."""

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from pulljobs import ids
from pulljobs.engine.validation import Draft, Payload, check_iterable
from pulljobs.workflows import children
from pulljobs.workflows.effects import Operation
from pulljobs.workflows.interrupting import call_store, noting_failure
from pulljobs.workflows.operations import begin, result_of, store_result
from pulljobs.workflows.replay import LONGEST_NAME, Step, Suspension

if TYPE_CHECKING:
    from pulljobs.workflows.context import RunContext


def do_gather(
    context: "RunContext",
    name: str,
    channel: str,
    drafts: Iterable[Draft | Payload],
    return_errors: bool,
) -> Operation:
    """Publish child jobs, suspend the run until all have ended, and return their results."""
    step = yield from _begin(context, name, "gather", channel)
    if not step.is_stored:
        check_iterable(drafts)
        listed = list(drafts)
        if not listed:
            return (yield from store_result(context, step, time.monotonic(), []))
        yield from _publish(context, step, channel, listed, is_ended=False)
    return (yield from _collect(context, step, step.batch_id, return_errors))


def do_start(context: "RunContext", name: str, channel: str, draft: Draft | Payload) -> Operation:
    """Publish a child job exactly once, as the step `name`, and return it without waiting."""
    step = yield from _begin(context, name, "start", channel)
    if not step.is_ended:
        yield from _publish(context, step, channel, [draft], is_ended=True)
    context.replay.end(step)
    [job_id] = step.children or []
    return children.ChildJob(ids.encode(job_id), step.batch_id or 0)


def _begin(context: "RunContext", name: str, kind: str, channel: str) -> Operation:
    step = yield from begin(context, name, kind, channel)
    if step.failure is not None:  # The children could not be published, and the workflow went on.
        result_of(context, step)
    return step


def _publish(
    context: "RunContext",
    step: Step,
    channel: str,
    drafts: Sequence[Draft | Payload],
    *,
    is_ended: bool,
) -> Operation:
    with noting_failure(context, step):
        yield from call_store(
            context,
            partial(children.publish, context.store, step, channel, drafts, is_ended=is_ended),
        )


def name_start(channel: str) -> str:
    """Return the default name of the step that starts a child job on a channel."""
    return f"start {channel}"[:LONGEST_NAME]


def do_result(context: "RunContext", child: children.ChildJob, return_errors: bool) -> Operation:
    """Suspend the run until a child job has ended, and return its result."""
    if not isinstance(child, children.ChildJob):
        raise TypeError(f"run.result needs a child that run.start returned, not {child!r:.300}.")
    step = yield from begin(context, f"result of {child.id}", "gather")
    # The batch is that of the step that published the child: a redrive from here does not kill it.
    step.children = step.children or [ids.decode(child.id)]
    [value] = yield from _collect(context, step, child.batch_id, return_errors)
    return value


def _collect(
    context: "RunContext", step: Step, batch_id: int | None, return_errors: bool
) -> Operation:
    outcomes = step.result
    if not step.is_ended:
        context.store.before_effect(step)
        collect = partial(children.collect, context.store, step, batch_id)
        outcomes = yield from call_store(context, collect)
        if isinstance(outcomes, timedelta):
            context.replay.raise_ending(
                Suspension(step, outcomes, is_bounded=False, waiting_batch=batch_id)
            )
        text = children.encode_outcomes(outcomes)
        yield from call_store(context, partial(context.store.write_outcomes, step, text))
    context.replay.end(step)
    return children.values_of(outcomes or [], return_errors=return_errors)
