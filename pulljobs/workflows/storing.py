"""Writes of a run under its lease: steps, signals that it consumes, and its suspension."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db import InterfaceError, InternalError, OperationalError, connections, transaction
from psycopg.errors import InFailedSqlTransaction, ReadOnlySqlTransaction

from pulljobs import emission, ids, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.circuit import Result
from pulljobs.engine.outcomes import Settlement
from pulljobs.engine.sql import Params, Row
from pulljobs.engine.telemetry import JobFailed, emit, is_counting
from pulljobs.errors import LeaseLost, WorkflowError
from pulljobs.handlers import ClaimedJob
from pulljobs.outcome_texts import encoded
from pulljobs.states import State
from pulljobs.storage import listen, nodes
from pulljobs.storage.plans import keeping_plans
from pulljobs.storage.sessions import LONGEST_SECONDS
from pulljobs.storage.statements import run
from pulljobs.storage.transactions import brief, call_on_commit, retrying
from pulljobs.worker import transactions
from pulljobs.worker.runs import end_now
from pulljobs.workflows.failures import encode_failure
from pulljobs.workflows.replay import FOREVER, Continuation, Interruption, Step, Suspension
from pulljobs.workflows.telemetry import StepEnded

NOW: Final = timedelta()
RESUMED: Final = 2
"""Deliveries up to which a run has used no retries: its first claim, and one that resumes it."""


@dataclass(slots=True)
class RunStore:
    """Writer of one claim of a run. Once the lease is lost, its writes raise LeaseLost."""

    using: str
    job: ClaimedJob
    on_stored: Callable[[ClaimedJob, Step], object] = lambda job, step: None
    """Function that is called after the commit of each step that has ended."""
    can_pause: bool = True
    """False in a test: short sleeps and the pauses between attempts of a step end at once."""

    _has_used_retries: bool = field(init=False)

    def __post_init__(self) -> None:
        self._has_used_retries = self.job.retry_count > 0 or self.job.deliveries > RESUMED

    def before_effect(self, step: Step) -> None:
        """Raise WorkflowError if the effect of a step is inside a transaction.

        Operations call this before every effect. The store of a dry replay ends the replay here.
        """
        self.refuse_transaction(f"{step.kind} {step}")

    def refuse_transaction(self, what: str) -> None:
        """Raise WorkflowError inside a transaction, whose rollback would undo the call `what`."""
        for using in transactions.databases():
            _refuse_transaction(using, what)

    def time_until(self, at: datetime) -> timedelta:
        """Return the time from now until `at`, by the clock of the database."""
        return at - nodes.clock(self.using)

    def write(
        self, step: Step, seconds: float, *, result: Any = None, failure: Exception | None = None
    ) -> Any:
        """Write a step that has ended, and return its result as a replay would find it.

        `seconds` is the time that the step took. `failure` is the exception of a step that failed,
        whose result is None. Raise LeaseLost if the lease is lost, WorkflowError in a transaction,
        and TypeError or ValueError for a result that can't be stored.
        """
        self.refuse_transaction(f"{step.kind} {step}")
        stored = self._write(
            step, seconds, result=encoded(result, f"result of {step}"), failure=failure
        )
        self.on_stored(self.job, step)
        return stored

    @contextmanager
    def atomic(self, step: Step, began: float, result: "StepResult") -> Iterator[None]:
        """Run the block in a transaction that ends with the write of the step.

        The block sets `result`. `began` is the monotonic time at which the step began. An error in
        a callback of `on_commit` is reported, and fails no step: the commit is done.
        """
        self.refuse_transaction(f"run.atomic({step.name!r})")
        with _interrupting() as block, transactions.committing(self._emit_failure) as check:
            block += [connections[using].connection for using in transactions.databases()]
            yield
            block.clear()
            check()
            text = encoded(result.value, f"result of {step}")
            result.value = self._write(step, time.monotonic() - began, result=text)
        self.on_stored(self.job, step)

    @contextmanager
    def discarding(self) -> Iterator[None]:
        """Run the block of a step that has ended before, and roll back all that it writes."""
        with _interrupting() as block, transactions.atomic():
            block += [connections[using].connection for using in transactions.databases()]
            yield
            for using in transactions.databases():
                transaction.set_rollback(True, using=using)

    def take_signal(self, step: Step, is_over: bool) -> tuple[bool, Any]:
        """End a wait with its oldest signal, and return True and the payload.

        Without a signal, return False and None. The wait then ends, as timed out, only if
        `is_over` is True.
        """
        self.refuse_transaction(f"wait {step}")
        params = {**self._held(), "is_over": is_over, **_key(step)}
        rows = retrying(
            self.using,
            partial(
                run, self.using, "take_signal", params, seconds=LONGEST_SECONDS, keeps_plan=True
            ),
        )
        if not rows:
            raise self._lost()
        if rows[0].is_taken or is_over:
            self.on_stored(self.job, step)
        return rows[0].is_taken, rows[0].payload

    def write_children(self, step: Step, *, is_ended: bool) -> None:
        """Write a step with its child jobs. The caller calls this last in its transaction.

        `is_ended` is True for a step that does not wait for them.
        """
        child = ids.encode(step.children[0]) if is_ended and step.children else None
        self._write(step, None, is_ended=is_ended, result=child and json.dumps(child))

    def write_outcomes(self, step: Step, outcomes: str) -> None:
        """End a step with the outcomes of all its child jobs, as JSON."""
        retrying(self.using, partial(self._write_outcomes, step, outcomes))
        self.on_stored(self.job, step)

    def _write_outcomes(self, step: Step, outcomes: str) -> None:
        with brief(self.using):
            self._write(step, None, result=outcomes)
            run(self.using, "end_gather", {"run_id": self.job.id})

    def end_claim(self, ending: Suspension | Continuation, version: int) -> None:
        """Write a suspension or a continuation, which gives up the lease, or raise LeaseLost.

        A continuation sets the version of the run to `version`, that of the code.
        """
        if isinstance(ending, Suspension):
            retrying(self.using, partial(self._suspend, ending))
        else:
            retrying(self.using, partial(self._continue, ending, version))

    def leave(self) -> None:
        """Release the run. It is not claimed before a worker that accepts its version queues it."""
        retrying(self.using, self._leave)

    def _leave(self) -> None:
        with brief(self.using):
            self._finish(outcomes.release(self.job.held, after=FOREVER), Result.NEUTRAL)
            run(self.using, "leave_run", {"run_id": self.job.id})
            self.job.went_to = State.QUEUED

    def _suspend(self, ending: Suspension) -> None:
        with brief(self.using), keeping_plans(self.using):
            self._finish(outcomes.suspend(self.job.held, ending.delay))
            params = {
                "run_id": self.job.id,
                **_key(ending.step),
                "kind": ending.step.kind,
                "function": ending.step.function,
                "is_bounded": ending.is_bounded,
                "children": ending.step.children,
                "waiting_for": ending.waiting_for,
                "waiting_batch": ending.waiting_batch,
            }
            self._wake(run(self.using, "suspend_run", params))

    def _continue(self, ending: Continuation, version: int) -> None:
        with brief(self.using), keeping_plans(self.using):
            self._finish(outcomes.suspend(self.job.held, NOW))
            params = {"run_id": self.job.id, "version": version, "input": f"[{ending.payload}]"}
            self._wake(run(self.using, "continue_run", params))

    def _finish(self, outcome: Settlement, verdict: Result = Result.SUCCESS) -> None:
        end_now(self.job)
        names = self.job.handler.names
        finished = pulling.finish([outcome._replace(run=self.job)], lambda: {self.job.id: names})
        if self.job.id not in finished.states:
            raise self._lost()
        self.job.verdict = verdict
        # Before the commit: a renewal right after it would find no lease and report it lost.
        self.job.mark_settled()

    def _wake(self, rows: Sequence[Row]) -> None:
        if rows:
            self.job.went_to = State.QUEUED
            listen.wake_on_commit(self.using, [row.consumer_id for row in rows])

    def _write(
        self,
        step: Step,
        seconds: float | None,
        *,
        is_ended: bool = True,
        result: str | None = None,
        failure: Exception | None = None,
    ) -> Any:
        params = {
            **self._held(),
            **_key(step),
            "kind": step.kind,
            "function": step.function,
            "seconds": seconds or 0.0,
            "is_ended": is_ended,
            "result": result,
            "failure": None if failure is None else encode_failure(failure),
            "batch_id": step.batch_id,
            "children": step.children,
        }
        rows = retrying(self.using, partial(self._insert, params))
        if not rows:
            raise self._lost()
        if seconds is not None and is_counting():  # Child jobs take their own time.
            event = StepEnded(*self.job.handler.names, step.kind, seconds, failure is not None)
            emission.emit_on_commit(self.using, event)
        return rows[0].result

    def _insert(self, params: Params) -> list[Row]:
        """Write a step, and restore used retries of the run. Return no row if the lease is lost."""
        if not self._has_used_retries:
            return run(self.using, "write_step", params, seconds=LONGEST_SECONDS, keeps_plan=True)
        with brief(self.using):
            rows = run(self.using, "write_step", params)
            run(self.using, "restore_retries", self._held())
            call_on_commit(self.using, self._note_restored)  # A block may roll the step back.
        return rows

    def _emit_failure(self, error: Exception) -> None:
        emit(JobFailed(self.job.id, *self.job.handler.names, type(error).__name__))

    def _note_restored(self) -> None:
        self._has_used_retries = False

    def _held(self) -> dict[str, Any]:
        held = self.job.held
        return {"run_id": held.job_id, "lease_token": held.lease_token}

    def _lost(self) -> LeaseLost:
        self.job.taken_away = True
        return LeaseLost(self.job.id)


@dataclass(slots=True)
class StepResult:
    """Result of a step, which the function or block of the step provides."""

    value: Any = None


@contextmanager
def _interrupting() -> Iterator[list[Any]]:
    """Raise Interruption for an error of the commit, and if the database ends or refuses the block.

    It ends the block with its connection, and refuses it while it is read-only. The caller keeps
    the connections in the yielded list while the block runs. Other errors are failures of the step.
    """
    block: list[Any] = []
    try:
        yield block
    except (InterfaceError, InternalError, OperationalError) as error:
        is_lost = any(getattr(connection, "closed", False) for connection in block)
        is_of_commit = not block and not isinstance(error.__cause__, InFailedSqlTransaction)
        if is_lost or is_of_commit or isinstance(error.__cause__, ReadOnlySqlTransaction):
            raise Interruption(error) from error
        raise


def _refuse_transaction(using: str, what: str) -> None:
    blocks = connections[using].atomic_blocks
    # As Django's `durable` has it: the transaction of a TestCase does not count.
    if blocks and not getattr(blocks[-1], "_from_testcase", False):
        raise WorkflowError(
            f"{what} is inside a transaction, which would be rolled back without it or together "
            "with it: leave the transaction first, or put the writes into run.atomic."
        )


def _key(step: Step) -> dict[str, Any]:
    return {"name": step.name, "number": step.number, "position": step.position}
