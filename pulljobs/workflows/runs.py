"""Run that the worker passes to workflows: steps and their keys, sleeps, signals, child jobs."""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from pulljobs import ids
from pulljobs.engine.validation import Draft, Payload
from pulljobs.handlers import ClaimedJob
from pulljobs.outcome_texts import encoded
from pulljobs.workflows.child_operations import do_gather, do_result, do_start, name_start
from pulljobs.workflows.children import ChildJob
from pulljobs.workflows.context import RunContext
from pulljobs.workflows.effects import drive
from pulljobs.workflows.interrupting import ending_claim, noting_failure
from pulljobs.workflows.operations import (
    begin,
    check_aware,
    do_sleep,
    do_step,
    do_wait,
    result_of,
)
from pulljobs.workflows.replay import Continuation, Step, check_delay
from pulljobs.workflows.storing import StepResult


class RunBase:
    """Base of sync and async runs, with the attributes and methods that run no SQL."""

    def __init__(self, context: RunContext) -> None:
        self._context = context

    @property
    def id(self) -> str:
        """Public id of the run, which is that of its job."""
        return ids.encode(self._context.job.id)

    @property
    def job(self) -> ClaimedJob:
        """Job of the run, with its message."""
        return self._context.job

    @property
    def version(self) -> int:
        """Version of the code that claimed the run first, or with which it last began again."""
        return self._context.version

    @property
    def input(self) -> Any:
        """Payload of the run's message, or of the last `continue_as`, parsed as JSON.

        Reading it raises ValueError if it is not JSON. `run.job.payload` has the bytes.
        """
        context = self._context
        return context.input if context.is_continued else context.job.json()

    def progress(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report how far the run is. See `ClaimedJob.progress`."""
        self._context.job.progress(done, total, note)

    def key(self, name: str) -> str:
        """Return an idempotency key for the step of that name that runs now, or else for the next.

        Every attempt gets the same key, so a service that knows keys does the work once. Raise
        StepMismatch if several steps of that name run at the same time.
        """
        context = self._context
        number = context.replay.number_now(name)
        rounds = f".{context.rounds}" if context.rounds else ""
        return f"{self.id}{rounds}:{name}:{number}"


class Run(RunBase):
    """Run of a workflow under its lease. Its steps have names, and their results are stored.

    A step that has ended returns its stored result. Steps raise LeaseLost once the lease is known
    to be lost. Results are JSON of at most `MAX_RESULT_BYTES`.
    """

    def step(
        self,
        name: str,
        function: Callable[..., Any],
        /,
        *args: Any,
        retries: int = 0,
        timeout: timedelta | None = None,
        **kwargs: Any,
    ) -> Any:
        """Return the stored result of a step, or call the function and store its result.

        The function runs at least once, and never after its result was stored. After an exception
        it is called up to `retries` times more in this claim, after about 1, 2, 4, ... 30 seconds.
        `timeout` limits each call within the handler's time limit: the claim ends as timed out.
        """
        return drive(do_step(self._context, name, function, args, kwargs, retries, timeout))

    @contextmanager
    def atomic(self, name: str) -> Iterator["AtomicStep"]:
        """Run the block in a transaction that commits together with the step: exactly once.

        Writes to a second database may happen again after a crash between the two commits. If the
        step has ended before, `pending` is False and `result` has its stored result. Leave the
        writes out then, because they would be rolled back. Raise WorkflowError inside another
        transaction.
        """
        context = self._context
        step = drive(begin(context, name, "atomic"))
        if step.is_ended:
            with ending_claim(context), context.store.discarding():
                yield AtomicStep(step, result_of(context, step))
            return
        block = AtomicStep(step)
        with noting_failure(context, step), context.store.atomic(step, time.monotonic(), block):
            yield block
        block.is_stored = True
        context.replay.end(step)

    def sleep(self, name: str, delay: timedelta) -> None:
        """Suspend the run for a time. A sleep of over a second keeps no thread and no lease."""
        drive(do_sleep(self._context, name, check_delay(name, delay)))

    def sleep_until(self, name: str, at: datetime) -> None:
        """Suspend the run until an aware time, by the clock of the database."""
        drive(do_sleep(self._context, name, check_aware(name, at)))

    def wait(self, name: str, timeout: timedelta | None = None) -> Any:
        """Return the payload of the next signal of that name, and suspend the run until it is sent.

        Raise WaitTimedOut if none comes within `timeout`.
        """
        return drive(do_wait(self._context, name, timeout))

    def gather(
        self,
        name: str,
        drafts: Iterable[Draft | Payload],
        *,
        channel: str | None = None,
        return_errors: bool = False,
    ) -> list[Any]:
        """Publish a child job for each draft and return their results in order.

        The run is suspended until all have ended. The children are jobs of the only consumer of the
        channel, which has the name of the step unless `channel` names another. Raise ChildFailed
        for the first child that is DEAD or deleted. With `return_errors` the list has exceptions in
        place of missing results.
        """
        results: list[Any] = drive(
            do_gather(self._context, name, channel or name, drafts, return_errors)
        )
        return results

    def start(self, channel: str, payload: Draft | Payload, *, name: str | None = None) -> ChildJob:
        """Publish a child job, exactly once, and go on. The default name is `start CHANNEL`."""
        child: ChildJob = drive(
            do_start(self._context, name or name_start(channel), channel, payload)
        )
        return child

    def result(self, child: ChildJob, *, return_errors: bool = False) -> Any:
        """Return the result of a child job, suspending the run until it has ended. See `gather`."""
        return drive(do_result(self._context, child, return_errors))

    def continue_as(self, payload: Any) -> Any:
        """Begin the run again, with another payload and without its steps. It never returns.

        The id stays, signals that no wait consumed stay, and the version is that of the code now.
        Raise TypeError or ValueError if the payload is no JSON, and WorkflowError in a transaction.
        """
        self._context.store.refuse_transaction("continue_as")
        return continue_as(self._context, payload)


class AtomicStep(StepResult):
    """Step whose block is a transaction. The block may set `result` if `pending` is True."""

    def __init__(self, step: Step, result: Any = None) -> None:
        super().__init__(result)
        self.pending, self.is_stored = not step.is_ended, step.is_ended

    @property
    def result(self) -> Any:
        """Result of the step, which must be JSON. Once the step has ended it keeps its value."""
        return self.value

    @result.setter
    def result(self, value: Any) -> None:
        if not self.is_stored:
            self.value = value


def continue_as(context: RunContext, payload: Any) -> Any:
    """Raise a Continuation with the payload, or TypeError or ValueError if it is not JSON."""
    return context.replay.raise_ending(Continuation(encoded(payload, "payload") or "null"))
