"""Outcomes of runs: the handler or a canceller decides, whichever is first."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Barrier

from pulljobs.engine.run_times import SAMPLE, RunTime
from pulljobs.handlers import ClaimedJob
from pulljobs.worker.runs import CancelReason, HandlerRun, HandlerRuns
from tests.worker.claiming import unclaimed

_numbers = count(1)


def begun(runs: HandlerRuns, cancelled: list[HandlerRun]) -> HandlerRun:
    job = unclaimed(next(_numbers))
    runs.begin(job, runs.slot(0, cancelled.append), time.monotonic())
    return next(run for run in runs.current() if run.job is job)


def test_run_that_ended_can_not_be_cancelled() -> None:
    runs, cancellations = HandlerRuns(), list[HandlerRun]()
    run = begun(runs, cancellations)
    assert runs.end(run.job) is None
    assert not run.cancel(CancelReason.TIMED_OUT)
    assert cancellations == runs.current() == []
    assert not run.job.taken_away


def test_run_is_cancelled_once_and_listed_until_its_handler_ends() -> None:
    runs, cancellations = HandlerRuns(), list[HandlerRun]()
    run, other = begun(runs, cancellations), begun(runs, cancellations)
    assert run.cancel(CancelReason.LOST)
    assert not run.cancel(CancelReason.TIMED_OUT)
    [cancelled] = cancellations
    assert (cancelled.job, cancelled.cancel_reason) == (run.job, CancelReason.LOST)
    assert set(runs.current()) == {cancelled, other}
    assert runs.end(run.job) == cancelled
    assert not run.cancel(CancelReason.STOPPED)
    assert cancellations == [cancelled]
    assert runs.current() == [other]
    assert not other.job.taken_away


def test_quick_runs_are_sampled_by_their_begins() -> None:
    """A run time is noted unless the run began soon after a noted one, however long it lasted."""
    runs, run_time = HandlerRuns(), RunTime()
    slot, start = runs.slot(0, lambda run: None), time.monotonic() - 60
    expected = list[float]()
    for begun_at in (start, start + SAMPLE / 2, start + SAMPLE * 2):
        job = unclaimed(next(_numbers))
        job.run_time = run_time
        runs.begin(job, slot, begun_at)
        runs.end(job)
        expected.append(run_time.expected)
    first, second, third = expected
    assert first == second != third


def test_only_one_of_several_threads_decides_about_a_run() -> None:
    with ThreadPoolExecutor(3) as threads:
        for _round in range(300):
            runs, cancellations = HandlerRuns(), list[HandlerRun]()
            run = begun(runs, cancellations)
            cancel = partial(run.cancel, CancelReason.TIMED_OUT)
            ways = (cancel, partial(_ends, runs, run.job), cancel)
            firsts = list(threads.map(partial(_together, Barrier(3)), ways))
            assert firsts.count(True) == 1
            assert len(cancellations) == (0 if firsts[1] else 1)
            assert runs.current() == []


def _ends(runs: HandlerRuns, job: ClaimedJob) -> bool:
    return runs.end(job) is None


def _together(barrier: Barrier, way: Callable[[], bool]) -> bool:
    barrier.wait()
    return way()
