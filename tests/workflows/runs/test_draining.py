"""Test tools and runs: `drain` lets time pass and wakes runs, and `crash_after` crashes them."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.utils import timezone

from pulljobs.errors import Snooze, WaitTimedOut
from pulljobs.models import Job
from pulljobs.publishing import Draft
from pulljobs.states import State
from pulljobs.testing import crash_after, drain, perform, run_workflow
from pulljobs.workflows import Run, effects, signal
from tests.factories import ConsumerFactory
from tests.workflows.runs.conftest import Bench


def test_drain_lets_the_time_of_sleeps_and_waits_pass(bench: Bench) -> None:
    def approve(run: Run) -> str:
        run.sleep("night", timedelta(days=30))
        try:
            run.wait("approval", timedelta(days=7))
        except WaitTimedOut:
            return "too late"
        return "approved"

    bench.workflow(approve)
    bench.start()
    assert [ran.job.state for ran in drain()] == [State.QUEUED]
    assert drain(delayed=True)[-1].job.result == "too late"


@pytest.mark.parametrize("slept", [timedelta(0), timedelta(days=30)])
def test_drain_leaves_a_run_that_waits_for_a_signal_without_a_limit(
    bench: Bench, slept: timedelta
) -> None:
    bench.workflow(lambda run: run.sleep("night", slept) or run.wait("approval"))
    run_id = bench.start()
    assert {ran.job.state for ran in drain(delayed=True)} == {State.QUEUED}
    assert drain(delayed=True) == []
    signal(run_id, "approval", 7)
    [ran] = drain()
    assert ran.job.result == 7, "the transaction of a test never commits"


def test_drain_runs_a_retry_of_a_run_that_waited_before(bench: Bench) -> None:
    failures = [ZeroDivisionError()]

    def approve(run: Run) -> Any:
        approval = run.wait("approval")
        if failures:
            raise failures.pop()
        return approval

    bench.workflow(approve)
    run_id = bench.start()
    drain()
    signal(run_id, "approval", 7)
    assert drain(delayed=True)[-1].job.result == 7


def test_perform_refuses_a_workflow(bench: Bench) -> None:
    fulfil = bench.workflow(lambda run: run.input)
    with pytest.raises(TypeError, match=r"is a workflow, .* call run_workflow\(\)"):
        perform(fulfil, 7)


def test_a_block_crashes_runs_after_its_steps(bench: Bench) -> None:
    def fulfil(run: Run) -> None:
        run.step("charge", lambda: None)
        run.step("ship", lambda: None)

    bench.workflow(fulfil)
    with crash_after("charge"):
        assert run_workflow(fulfil, crash_after="ship").crashes == 2
    assert run_workflow(fulfil).crashes == 0
    assert not Job.objects.exists()


def test_a_tested_run_waits_neither_for_short_sleeps_nor_between_attempts(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait(pause: effects.Pause) -> None:
        raise AssertionError(pause)

    failures = [ZeroDivisionError() for _ in range(3)]

    def charge() -> str:
        if failures:
            raise failures.pop()
        return "paid"

    def fulfil(run: Run) -> Any:
        run.sleep("breath", timedelta(seconds=1))
        return run.step("charge", charge, retries=3)

    monkeypatch.setattr(effects.Pause, "do", wait)
    bench.workflow(fulfil)
    assert run_workflow(fulfil).result == "paid"


def test_the_message_of_a_tested_run_may_have_a_key(bench: Bench) -> None:
    def echo(run: Run) -> Any:
        return [run.job.key, run.input]

    bench.workflow(echo)
    assert run_workflow(echo, Draft(payload=7, key="k")).result == ["k", 7]


def test_children_of_children_run_in_a_tested_run(bench: Bench) -> None:
    middle, leaf = ConsumerFactory.create(), ConsumerFactory.create()

    def split(run: Run) -> Any:
        return run.gather(leaf.channel.name, [run.input, run.input + 1])

    root = bench.workflow(lambda run: run.gather(middle.channel.name, [10, 20]))
    Bench(middle).workflow(split)
    Bench(leaf).workflow(lambda run: run.input)
    assert run_workflow(root).result == [[10, 11], [20, 21]]


@pytest.mark.parametrize("limit", [None, timedelta(days=1)])
@pytest.mark.parametrize("delay", [timedelta(), timedelta(hours=1)])
def test_a_started_child_sends_its_parent_a_signal_in_a_tested_run(
    bench: Bench, limit: timedelta | None, delay: timedelta
) -> None:
    child = ConsumerFactory.create()

    def start(run: Run) -> list[Any]:
        started = run.start(child.channel.name, [run.id])
        return [run.wait("hello", limit), run.result(started)]

    def greet(run: Run) -> str:
        run.sleep("late", delay)
        signal(run.input[0], "hello", 1, dedupe_id="hello")
        return "greeted"

    Bench(child).workflow(greet)
    assert run_workflow(bench.workflow(start), crash_after="*").result == [1, "greeted"]


def test_a_child_that_is_snoozed_again_and_again_lets_the_wait_of_a_tested_run_end(
    bench: Bench,
) -> None:
    """`run_workflow` ends a parent's wait, as the time of its child's snoozes passes for both."""
    child, polls = ConsumerFactory.create(), list[int]()

    def start(run: Run) -> str:
        run.start(child.channel.name, None)
        with pytest.raises(WaitTimedOut):
            run.wait("never", timedelta(minutes=5))
        return "too late"

    def poll(run: Run) -> None:
        polls.append(1)
        raise Snooze(timedelta(minutes=1))

    Bench(child).workflow(poll)
    assert run_workflow(bench.workflow(start), max_claims=20).result == "too late"
    assert 4 <= len(polls) <= 6


def test_a_wait_of_a_tested_run_ends_before_a_child_that_is_due_later(bench: Bench) -> None:
    child, foreign = ConsumerFactory.create_batch(2)

    def start(run: Run) -> str:
        run.start(foreign.channel.name, None)  # No handler serves it in this test.
        started = run.start(child.channel.name, None)
        with pytest.raises(WaitTimedOut):
            run.wait("never", timedelta(hours=1))
        run.step("tell", signal, started.id, "go on")
        result: str = run.result(started)
        return result

    def follow(run: Run) -> str:
        run.wait("go on", timedelta(days=1))
        return "in time"

    Bench(child).workflow(follow)
    assert run_workflow(bench.workflow(start)).result == "in time"


def test_a_tested_run_whose_child_waits_for_a_signal_says_so(bench: Bench) -> None:
    child = ConsumerFactory.create()
    Bench(child).workflow(lambda run: run.wait("approval"))
    split = bench.workflow(lambda run: run.gather(child.channel.name, [1]))
    with pytest.raises(AssertionError, match="waits for a signal 'approval'"):
        run_workflow(split)


def test_a_tested_run_that_no_claim_takes_says_why(bench: Bench) -> None:
    bench.consumer.paused_until = timezone.now() + timedelta(days=1)
    bench.consumer.save()
    with pytest.raises(AssertionError, match="Its consumer is paused until"):
        run_workflow(bench.workflow(lambda run: None))


def test_a_tested_run_that_loses_its_lease_in_a_thread_ends_the_test(bench: Bench) -> None:
    def charge(run: Run) -> None:
        try:
            run.step("charge", int)
        finally:
            connections.close_all()

    def fulfil(run: Run) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(charge, run).result()

    with pytest.raises(AssertionError, match="use TransactionTestCase"):
        run_workflow(bench.workflow(fulfil))
