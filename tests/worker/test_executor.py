"""Outcomes of jobs: every ack policy against everything a handler may do."""

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connection
from django.db.models.functions import Now
from django.test import override_settings

from pulljobs import jobs
from pulljobs.engine.circuit import Result
from pulljobs.engine.telemetry import HandlerSilent, JobFailed, record_with
from pulljobs.errors import ChildFailed, Discard, LeaseLost, Retry, Snooze, WaitTimedOut
from pulljobs.handlers import AckPolicy, ClaimedJob
from pulljobs.models import Attempt, Channel, Job
from pulljobs.states import Event, State
from pulljobs.storage.rows import JobView
from pulljobs.worker.circuits import ConsumerCircuit
from pulljobs.worker.executor import perform
from pulljobs.worker.result_buffer import ResultBuffer
from pulljobs.worker.runs import CancelReason, HandlerRuns
from tests.factories import ChannelFactory, ConsumerFactory
from tests.sessions import Thread
from tests.worker.claiming import FlusherBench, claim_of, handler_of, limits

pytestmark = pytest.mark.django_db
HOUR = timedelta(hours=1)


def outcome(function: Callable[[ClaimedJob], Any], **options: Any) -> JobView:
    [job] = claim_of(function, **options)
    FlusherBench([job]).write(job, perform(job))
    return jobs.get(job.id)


def raising(error: BaseException | type[BaseException]) -> Callable[[ClaimedJob], Any]:
    def function(job: ClaimedJob) -> Any:
        raise error

    return function


def calling(*calls: Callable[[ClaimedJob], Any], then: str = "return") -> Callable[..., Any]:
    def function(job: ClaimedJob) -> Any:
        for call in calls:
            call(job)
        if then == "raise":
            raise ValueError(then)

    return function


BEHAVIOURS: dict[str, tuple[Callable[[ClaimedJob], Any], str]] = {
    # Handler, and the state of its job by nack_on_error, reject_on_error, ack, ack_first, manual.
    "returns": (lambda job: None, "delivered delivered delivered delivered queued"),
    "returns a result": (lambda job: {"n": 1}, "delivered delivered delivered delivered queued"),
    "raises": (raising(ValueError("x")), "queued dead delivered delivered queued"),
    "exits": (raising(SystemExit(3)), "queued dead delivered delivered queued"),
    "leaves a generator": (raising(GeneratorExit), "queued dead delivered delivered queued"),
    "loses another lease": (raising(LeaseLost(7)), "queued dead delivered delivered queued"),
    "retries": (raising(Retry(after=HOUR)), "queued queued queued delivered queued"),
    "retries badly": (
        lambda job: raising(Retry(after=5))(job),  # type: ignore[arg-type]  # the mistake
        "queued dead delivered delivered queued",
    ),
    "retries beyond time": (
        lambda job: raising(Retry(after=timedelta(days=3_000_000)))(job),
        "queued dead delivered delivered queued",
    ),
    "discards": (raising(Discard("x")), "dead dead dead delivered dead"),
    "acks": (calling(ClaimedJob.ack), "delivered delivered delivered delivered delivered"),
    "acks, raises": (
        calling(ClaimedJob.ack, then="raise"),
        "delivered delivered delivered delivered delivered",
    ),
    "nacks": (calling(lambda job: job.nack(HOUR)), "queued queued queued delivered queued"),
    "nacks, raises": (
        calling(lambda job: job.nack(HOUR), then="raise"),
        "queued queued queued delivered queued",
    ),
    "rejects": (calling(ClaimedJob.reject), "dead dead dead delivered dead"),
    "rejects, raises": (calling(ClaimedJob.reject, then="raise"), "dead dead dead delivered dead"),
    "rejects, acks": (
        calling(ClaimedJob.reject, ClaimedJob.ack),
        "dead dead dead delivered dead",
    ),
    "result too big": (lambda job: "x" * 20_000, "queued dead delivered delivered queued"),
    "result not JSON": (lambda job: object(), "queued dead delivered delivered queued"),
    "result not a number": (lambda job: float("nan"), "queued dead delivered delivered queued"),
    "result with NUL": (lambda job: "a\x00b", "delivered delivered delivered delivered queued"),
    "result half a pair": (lambda job: "\ud800", "delivered delivered delivered delivered queued"),
}
CASES = [
    pytest.param(function, policy, state.upper(), id=f"{name}-{policy}")
    for name, (function, states) in BEHAVIOURS.items()
    for policy, state in zip(AckPolicy, states.split(), strict=True)
]


@pytest.mark.parametrize(("function", "policy", "state"), CASES)
def test_outcome_by_policy(function: Callable[..., Any], policy: AckPolicy, state: str) -> None:
    """The ack policy decides what the result or exception of a handler means for its job."""
    view = outcome(function, ack_policy=policy)
    assert view.state == state
    assert view.retry_count == (1 if state == "QUEUED" else 0)


@pytest.mark.parametrize(
    ("function", "policy", "state"),
    [case for case in CASES if case.values[1] is not AckPolicy.ACK_FIRST],
)
def test_transactional_outcome_is_the_same(
    function: Callable[..., Any], policy: AckPolicy, state: str, request: pytest.FixtureRequest
) -> None:
    """Transactional handlers have the outcome of others, but an exception undoes an earlier ack."""
    acked = request.node.callspec.id.startswith("acks, raises")
    if acked and policy in (AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL):
        state = "QUEUED"
    if acked and policy is AckPolicy.REJECT_ON_ERROR:
        state = "DEAD"
    assert outcome(function, ack_policy=policy, transactional=True).state == state


@pytest.mark.parametrize("policy", AckPolicy)
@pytest.mark.parametrize("error", [ValueError("x"), None])
@pytest.mark.parametrize("is_async", [False, True])
def test_a_cancelled_run_reports_no_second_failure(
    policy: AckPolicy, error: Exception | None, is_async: bool
) -> None:
    """A cancelled run reports no failure when its handler returns or raises afterwards."""

    def heed(job: ClaimedJob) -> None:
        [run] = runs.current()
        assert run.cancel(CancelReason.TIMED_OUT)
        assert job.lost
        if error is not None:
            raise error

    async def aheed(job: ClaimedJob) -> None:
        heed(job)

    [job] = claim_of(aheed if is_async else heed, ack_policy=policy)
    runs, events = HandlerRuns(), list[object]()
    runs.begin(job, runs.slot(0, lambda run: None), time.monotonic())
    end = record_with(events.append)
    try:
        perform(job)
    finally:
        end()
    assert not [event for event in events if isinstance(event, JobFailed | HandlerSilent)]


@pytest.mark.parametrize(("function", "policy", "state"), CASES)
def test_outcomes_of_async_handlers_are_those_of_sync_handlers(
    function: Callable[..., Any], policy: AckPolicy, state: str
) -> None:
    async def awaited(job: ClaimedJob) -> Any:
        await asyncio.sleep(0)
        return function(job)

    view = outcome(awaited, ack_policy=policy)
    assert view.state == state
    assert view.retry_count == (1 if state == "QUEUED" else 0)


@pytest.mark.parametrize("policy", AckPolicy)
@pytest.mark.parametrize("is_async", [False, True])
def test_success_ends_a_row_of_failures(policy: AckPolicy, is_async: bool) -> None:
    """The circuit opens at two failures in a row, and not at two with a success between them."""

    def function(job: ClaimedJob) -> None:
        if next(fails):
            raise ValueError
        job.ack()

    async def awaited(job: ClaimedJob) -> None:
        function(job)

    fails, levels = iter([True, False, True, True]), list[int]()
    consumer = ConsumerFactory.create(retry_strategy="constant:60")
    handler = handler_of(consumer, awaited if is_async else function)
    consumer_circuit = ConsumerCircuit(handler, limits(BACKOFF_AFTER=2))
    for _round in range(4):
        [job] = claim_of(
            handler.function,
            consumer=consumer,
            consumer_circuit=consumer_circuit,
            ack_policy=policy,
        )
        ResultBuffer().add(job, perform(job))
        levels.append(consumer_circuit.level)
    assert levels == [0, 0, 0, 1]


@pytest.mark.parametrize("policy", [policy for policy in AckPolicy if policy != "ack_first"])
@pytest.mark.parametrize("transactional", [False, True])
def test_a_snoozed_job_waits_uncharged(policy: AckPolicy, transactional: bool) -> None:
    """With any policy but ack_first, a snooze queues the job for later, with no charge or error."""
    snooze = raising(Snooze(HOUR, "not before\x00 noon"))
    view = outcome(snooze, ack_policy=policy, transactional=transactional)
    assert (view.state, view.retry_count, view.error) == ("QUEUED", 0, None)
    job = Job.objects.get(available_at__gt=Now() + 0.9 * HOUR)
    assert (job.deliveries, job.suspect) == (0, False)
    attempt = Attempt.objects.get()
    assert (attempt.event, attempt.error) == ("release", "not before\ufffd noon")


@pytest.mark.parametrize("after", [5, None, timedelta(days=3_000_000)])
def test_a_wrong_delay_of_a_snooze_is_an_error_of_the_handler(after: Any) -> None:
    view = outcome(lambda job: raising(Snooze(after))(job), ack_policy="reject_on_error")
    assert view.state == "DEAD"
    assert "after must be" in (view.error or "")


@pytest.mark.parametrize("policy", AckPolicy)
@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("error", [Discard("x"), Retry(backoff=False), Snooze(HOUR)])
def test_discards_snoozes_and_retries_without_back_off_are_no_failures(
    error: Exception, policy: AckPolicy, is_async: bool
) -> None:
    def function(job: ClaimedJob) -> None:
        raise error

    async def awaited(job: ClaimedJob) -> None:
        raise error

    consumer = ConsumerFactory.create()
    handler = handler_of(consumer, awaited if is_async else function)
    consumer_circuit = ConsumerCircuit(handler, limits(BACKOFF_AFTER=1))
    [job] = claim_of(
        handler.function, consumer=consumer, consumer_circuit=consumer_circuit, ack_policy=policy
    )
    ResultBuffer().add(job, perform(job))
    assert consumer_circuit.is_calm


def test_async_handler_uses_the_database_and_renews() -> None:
    async def rename(job: ClaimedJob) -> str:
        assert await job.arenew()
        await Channel.objects.filter(name="old").aupdate(name="new")
        with pytest.raises(SynchronousOnlyOperation):
            job.renew()
        return (await Channel.objects.aget(name="new")).name

    ChannelFactory.create(name="old")
    assert outcome(rename).result == "new"


def test_result_is_kept_and_cleaned() -> None:
    assert outcome(lambda job: {"a\x00": ["é", None, 1.5]}).result == {"a\ufffd": ["é", None, 1.5]}
    assert outcome(lambda job: job.ack([1]) and None, ack_policy="manual").result == [1]


def test_a_retry_has_the_delay_that_the_handler_asked_for() -> None:
    for function in (raising(Retry(after=HOUR)), calling(lambda job: job.nack(HOUR))):
        view = outcome(function)
        assert view.available_at is not None
        with connection.cursor() as cursor:
            cursor.execute("SELECT %s - clock_timestamp()", [view.available_at])
            [wait] = cursor.fetchone()
        assert timedelta(minutes=59) < wait <= HOUR


def test_a_retry_into_the_past_is_due_now() -> None:
    view = outcome(raising(Retry(after=-HOUR)))
    with connection.cursor() as cursor:
        cursor.execute("SELECT clock_timestamp() - %s", [view.available_at])
        [ago] = cursor.fetchone()
    assert timedelta() <= ago < timedelta(minutes=1)


@override_settings(PULLJOBS={"MAX_ERROR_CHARS": 1000})
def test_error_is_first_line_and_traceback_cleaned_and_cut() -> None:

    def function(job: ClaimedJob) -> None:
        raise ValueError("bad \x00 and \ud800 " + "x" * 2000)

    error = outcome(function).error or ""
    assert error.startswith("ValueError: bad \ufffd and \\ud800 xxx")
    assert error.rstrip().endswith("x")
    assert "characters left out" in error
    assert len(error) < 1100


def test_a_syntax_error_begins_with_its_message() -> None:
    error = outcome(lambda job: compile("no python", "file.py", "exec")).error or ""
    assert error.startswith("SyntaxError: ")
    assert 'File "file.py", line 1' in error


def test_the_first_line_of_an_exception_group_names_its_first_exception() -> None:
    """The first line of an exception group's error, which lists show, names its first exception."""
    inner = ExceptionGroup("in\ntwo lines", [ValueError("no number")])
    first, *lines = (outcome(raising(ExceptionGroup("tasks", [inner]))).error or "").splitlines()
    assert first == (
        "ExceptionGroup: tasks (1 sub-exception): ExceptionGroup: in: ValueError: no number"
    )
    assert any("Traceback" in line for line in lines)


def test_error_texts_of_the_handler_are_cleaned() -> None:
    assert outcome(calling(lambda job: job.nack(error="a\x00\ud800"))).error == "a\ufffd\\ud800"
    assert outcome(calling(lambda job: job.reject("a\x00"))).error == "a\ufffd"
    assert outcome(raising(Discard("a\x00"))).error == "a\ufffd"


def test_a_reason_whose_text_fails_rejects_the_job_all_the_same() -> None:
    class Unprintable:
        def __str__(self) -> str:
            raise ValueError

    view = outcome(raising(Discard(Unprintable())))  # type: ignore[arg-type]  # the mistake
    assert view.state == State.DEAD
    assert "exception str() failed" in (view.error or "")


def test_the_first_outcome_wins_and_later_calls_return_false() -> None:
    accepted: list[bool] = []

    def function(job: ClaimedJob) -> None:
        accepted.extend([job.reject("first"), job.ack(), job.nack()])

    assert outcome(function, ack_policy="manual").error == "first"
    assert accepted == [True, False, False]


def test_a_job_that_is_delivered_before_its_run_takes_no_other_outcome() -> None:
    accepted: list[bool] = []

    def function(job: ClaimedJob) -> None:
        accepted.extend([job.ack("result"), job.nack(), job.reject()])

    assert outcome(function, ack_policy="ack_first").state == State.DELIVERED
    assert accepted == [False, False, False]


@pytest.mark.parametrize("policy", AckPolicy)
def test_an_outcome_that_a_thread_reports_after_the_handler_is_refused(policy: AckPolicy) -> None:
    """After the end of a run, `ack` and `nack` return False, as nothing would write the outcome."""
    [job] = claim_of(lambda job: None, ack_policy=policy)
    runs = HandlerRuns()
    runs.begin(job, runs.slot(0, lambda run: None), time.monotonic())
    perform(job)
    runs.end(job)
    assert not job.ack()
    assert not job.nack()


def test_an_outcome_that_is_reported_after_the_cancellation_is_refused() -> None:
    [job] = claim_of(lambda job: None)
    runs = HandlerRuns()
    runs.begin(job, runs.slot(0, lambda run: None), time.monotonic())
    [run] = runs.current()
    run.cancel(CancelReason.TIMED_OUT)
    assert not job.ack()


def test_ctrl_c_gets_out_of_a_handler_in_the_main_thread() -> None:
    [job] = claim_of(raising(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        perform(job)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("error", [WaitTimedOut("approval"), ChildFailed("c", "rejected", None)])
def test_failures_of_senders_and_children_hold_back_no_consumer(error: Exception) -> None:
    """A run that waited in vain is retried, and the circuit counts neither success nor failure."""
    [job] = claim_of(raising(error))
    settlement = perform(job)
    assert settlement is not None
    assert settlement.event is Event.RETRY
    assert job.verdict is Result.NEUTRAL


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("policy", [AckPolicy.NACK_ON_ERROR, AckPolicy.ACK_FIRST])
def test_a_keyboard_interrupt_in_a_thread_is_an_error_of_the_handler(policy: AckPolicy) -> None:
    """A KeyboardInterrupt in a thread is an error, as Ctrl-C is raised in the main thread only."""
    [job] = claim_of(raising(KeyboardInterrupt), ack_policy=policy)
    settlement = Thread(lambda: perform(job)).result()
    assert job.verdict is Result.FAILURE
    if policy is AckPolicy.NACK_ON_ERROR:
        assert settlement.event is Event.RETRY
        assert settlement.error.startswith("KeyboardInterrupt")
