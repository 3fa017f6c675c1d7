"""Test tool for workflows: it runs a run to its end, lets time jump and simulates crashes."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from pulljobs import handlers, ids, jobs, publishing
from pulljobs.conf import settings
from pulljobs.diagnosis import explain
from pulljobs.engine import outcomes
from pulljobs.engine.validation import Draft, Payload
from pulljobs.handlers import ClaimedJob, Handler
from pulljobs.models import Job
from pulljobs.pulling import Puller
from pulljobs.states import SETTLED, State
from pulljobs.testing.arguments import check_count, pairs_of, texts_of
from pulljobs.testing.draining import DrainedJob, claim_ready, run_claimed
from pulljobs.workflows import definitions, jumping
from pulljobs.workflows.definitions import Workflow
from pulljobs.workflows.models import RunSignal, WorkflowRun, WorkflowStep
from pulljobs.workflows.performing import aperform_run, perform_run
from pulljobs.workflows.replay import Step
from pulljobs.workflows.signals import signal

EVERY: Final = "*"
"""Value of `crash_after` that crashes after every step."""

_crash_after: Final[ContextVar[frozenset[str]]] = ContextVar("crash_after", default=frozenset())


class TestedRun(NamedTuple):
    """State of a run at its end, as `run_workflow` returns it."""

    id: str
    state: State
    result: Any
    error: str | None
    exception: BaseException | None
    """Exception that ended the last claim, or None if the workflow returned."""
    steps: list[str]
    """Names of the stored steps, in their order."""
    claims: int
    crashes: int


class SimulatedCrash(BaseException):
    """BaseException that ends a claim of a test as a crash would, after a step was stored."""


def run_workflow(
    function: Callable[..., Any],
    payload: Draft | Payload = None,
    *,
    signals: Mapping[str, Any] | Iterable[tuple[str, Any]] = (),
    crash_after: str | Collection[str] = (),
    max_claims: int = 1_000,
) -> TestedRun:
    """Run a workflow to its end, in the test's own connection, and return the run.

    Its message is published, and `signals`, payloads by name or pairs of both, are sent before the
    first claim. Sleeps are over at once, a wait for which no signal is left times out, and children
    and their own children run with the handlers of their channels. After the first step of each
    name in `crash_after` the claim ends once as if its process had died, with "*" after every step.
    Raise AssertionError if the run waits for a signal without a timeout or for a child that does
    not end, if no claim takes it, or if it does not end within `max_claims`.
    """
    check_count("max_claims", max_claims)
    sent = pairs_of("signals", signals)
    crashes = _Crashes(texts_of("crash_after", crash_after) | _crash_after.get())
    workflow, handler = _find(function, crashes)
    consumer = handlers.subscribed(handler)
    run_id = _publish(workflow, consumer.pk, payload)
    for name, value in sent:
        signal(run_id, name, value)
    puller = Puller(settings().DATABASE, consumer)
    exception, claims = None, 0
    while jobs.get(run_id).state not in SETTLED:
        for _round in range(max_claims):  # One of the children may send the signal.
            if not (_lacks_signal(run_id) and jumping.drain_started(run_id)):
                break
        _check_progress(run_id, claims, max_claims)
        jumping.end_children(run_id)
        jumping.make_due(run_id)
        for ran in _claim_and_run(puller, handler, run_id):
            if ran.job.id == run_id:
                exception, claims = ran.exception, claims + 1
    return _tested(run_id, exception, claims, crashes)


@contextmanager
def crash_after(*steps: str) -> Iterator[None]:
    """Add these steps to the argument `crash_after` of each `run_workflow` in the block."""
    reset = _crash_after.set(_crash_after.get() | texts_of("crash_after", steps))
    try:
        yield
    finally:
        _crash_after.reset(reset)


class _Crashes:
    """Steps after each of which a claim of the tested run ends once, as by a crash."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self.done: set[tuple[str, int]] = set()

    def note(self, job: ClaimedJob, step: Step) -> None:
        """Raise SimulatedCrash if a claim still has to crash after this step."""
        is_first = step.number == 1 or EVERY in self._names
        if step.key in self.done or not is_first or not {EVERY, step.name} & self._names:
            return
        self.done.add(step.key)
        job.settlement = outcomes.release(job.held)  # The crash of a test uses up no retry.
        raise SimulatedCrash(f"after {step}")


def _find(function: Callable[..., Any], crashes: _Crashes) -> tuple[Workflow, Handler]:
    """Return the workflow of a function, and a copy of its handler that makes these crashes."""
    workflow = definitions.find(function)
    names = (workflow.channel, workflow.consumer)
    handler = next(each for each in handlers.registered() if each.names == names)
    perform = aperform_run if workflow.is_async else perform_run
    function = partial(perform, workflow, on_stored=crashes.note, can_pause=False)
    return workflow, replace(handler, function=function)


def _publish(workflow: Workflow, consumer_id: int, payload: Draft | Payload) -> int:
    [receipt] = publishing.publish_many(workflow.channel, [payload])
    made = Job.objects.using(settings().DATABASE).filter(id__in=receipt.job_ids)
    return made.get(consumer_id=consumer_id).pk


def _check_progress(run_id: int, claims: int, max_claims: int) -> None:
    if claims >= max_claims:
        raise AssertionError(f"The run has not ended after {claims} claims: look for its loop.")
    using = settings().DATABASE
    run = WorkflowRun.objects.using(using).filter(id=run_id).exclude(waiting_for=None).first()
    if run is None:
        return
    steps = WorkflowStep.objects.using(using).filter(run_id=run_id, name=run.waiting_for)
    is_endless = steps.filter(kind="wait", ended_at=None, due_at=None).exists()
    if is_endless and _lacks_signal(run_id):
        raise AssertionError(
            f"The run waits for a signal {run.waiting_for!r} without a timeout: pass "
            f"signals=[({run.waiting_for!r}, payload)]."
        )


def _lacks_signal(run_id: int) -> bool:
    """Return True if a run waits for a signal that is not there."""
    using = settings().DATABASE
    sent = RunSignal.objects.using(using).filter(run_id=run_id, consumed_at=None)
    runs = WorkflowRun.objects.using(using).filter(id=run_id, waiting_for__isnull=False)
    return runs.exclude(waiting_for__in=sent.values("name")).exists()


def _claim_and_run(puller: Puller, handler: Handler, run_id: int) -> list[DrainedJob]:
    claim = claim_ready(puller, 1)
    if claim.taken is None or not claim.jobs:
        raise AssertionError(_describe_stuck(run_id))
    return [
        run_claimed(puller.consumer, handler, claim.taken, row, message)
        for row, message in claim.jobs
    ]


def _describe_stuck(run_id: int) -> str:
    """Return why no claim takes a run, of which a test would never see the end."""
    job = Job.objects.using(settings().DATABASE).get(pk=run_id)
    if job.state == State.INFLIGHT:
        return (
            "The run has lost its lease. If it calls steps in threads of its own, use "
            "TransactionTestCase, because other threads don't see the transaction of a TestCase."
        )
    return f"No claim takes the run. {explain.reasons(job)[0].text}"


def _tested(
    run_id: int, exception: BaseException | None, claims: int, crashes: _Crashes
) -> TestedRun:
    view = jobs.get(run_id)
    steps = WorkflowStep.objects.using(settings().DATABASE).filter(run_id=run_id)
    return TestedRun(
        id=ids.encode(run_id),
        state=view.state,
        result=view.result,
        error=view.error,
        exception=exception,
        steps=list(steps.order_by("position").values_list("name", flat=True)),
        claims=claims,
        crashes=len(crashes.done),
    )
