"""Whose word on a run counts: its own, or that of who cancels it. The first one."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Barrier

from pulljobs.handlers import ClaimedJob
from pulljobs.worker.runs import CancelReason, HandlerRun, HandlerRuns
from tests.worker.claiming import unclaimed

_numbers = count(1)


def begun(runs: HandlerRuns, told: list[HandlerRun]) -> HandlerRun:
    job = unclaimed(next(_numbers))
    runs.begin(job, runs.slot(0, told.append), time.monotonic())
    return next(run for run in runs.current() if run.job is job)


def test_run_that_ended_can_not_be_cancelled() -> None:
    runs, told = HandlerRuns(), list[HandlerRun]()
    run = begun(runs, told)
    assert runs.end(run.job) is None
    assert not run.cancel(CancelReason.TIMED_OUT)
    assert told == runs.current() == []
    assert not run.job.taken_away


def test_run_is_cancelled_once_and_listed_until_its_handler_ends() -> None:
    runs, told = HandlerRuns(), list[HandlerRun]()
    run, other = begun(runs, told), begun(runs, told)
    assert run.cancel(CancelReason.LOST)
    assert not run.cancel(CancelReason.TIMED_OUT)
    [cancelled] = told
    assert (cancelled.job, cancelled.cancel_reason) == (run.job, CancelReason.LOST)
    assert set(runs.current()) == {cancelled, other}
    assert runs.end(run.job) == cancelled
    assert not run.cancel(CancelReason.STOPPED)
    assert told == [cancelled]
    assert runs.current() == [other]
    assert not other.job.taken_away


def test_of_many_that_have_a_word_at_once_one_has_the_first() -> None:
    with ThreadPoolExecutor(3) as threads:
        for _round in range(300):
            runs, told = HandlerRuns(), list[HandlerRun]()
            run = begun(runs, told)
            cancel = partial(run.cancel, CancelReason.TIMED_OUT)
            ways = (cancel, partial(_ends, runs, run.job), cancel)
            words = list(threads.map(partial(_together, Barrier(3)), ways))
            assert words.count(True) == 1
            assert len(told) == (0 if words[1] else 1)
            assert runs.current() == []


def _ends(runs: HandlerRuns, job: ClaimedJob) -> bool:
    return runs.end(job) is None


def _together(barrier: Barrier, way: Callable[[], bool]) -> bool:
    barrier.wait()
    return way()
