"""Whose word on a run counts: its own, or that of who cancels it. The first one."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count
from threading import Barrier

from pulljobs.handlers import ClaimedJob
from pulljobs.worker.runs import Ended, Run, Runs
from tests.worker.claiming import unclaimed

_numbers = count(1)


def begun(runs: Runs, told: list[Run]) -> Run:
    job = unclaimed(next(_numbers))
    runs.begin(job, runs.slot(0, told.append), time.monotonic())
    return next(run for run in runs.now() if run.job is job)


def test_run_that_ended_can_not_be_cancelled() -> None:
    runs, told = Runs(), list[Run]()
    run = begun(runs, told)
    assert runs.end(run.job) is None
    assert not run.cancel(Ended.TIMED_OUT)
    assert told == runs.now() == []
    assert not run.job.taken_away


def test_run_is_cancelled_once_and_listed_until_its_handler_ends() -> None:
    runs, told = Runs(), list[Run]()
    run, other = begun(runs, told), begun(runs, told)
    assert run.cancel(Ended.LOST)
    assert not run.cancel(Ended.TIMED_OUT)
    [cancelled] = told
    assert (cancelled.job, cancelled.ended) == (run.job, Ended.LOST)
    assert set(runs.now()) == {cancelled, other}
    assert runs.end(run.job) == cancelled
    assert not run.cancel(Ended.STOPPED)
    assert told == [cancelled]
    assert runs.now() == [other]
    assert not other.job.taken_away


def test_of_many_that_have_a_word_at_once_one_has_the_first() -> None:
    with ThreadPoolExecutor(3) as threads:
        for _round in range(300):
            runs, told = Runs(), list[Run]()
            run = begun(runs, told)
            cancel = partial(run.cancel, Ended.TIMED_OUT)
            ways = (cancel, partial(_ends, runs, run.job), cancel)
            words = list(threads.map(partial(_together, Barrier(3)), ways))
            assert words.count(True) == 1
            assert len(told) == (0 if words[1] else 1)
            assert runs.now() == []


def _ends(runs: Runs, job: ClaimedJob) -> bool:
    return runs.end(job) is None


def _together(barrier: Barrier, way: Callable[[], bool]) -> bool:
    barrier.wait()
    return way()
