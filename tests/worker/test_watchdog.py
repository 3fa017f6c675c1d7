"""Watchdog: when a process is replaced, and when it is unhealthy."""

import gc
import multiprocessing
import threading
import time
import weakref
from datetime import timedelta
from typing import Any

import pytest

from pulljobs.loops import Runner
from pulljobs.worker import watchdog as module
from pulljobs.worker.debounce import OBSERVATIONS
from pulljobs.worker.runs import CancelReason, HandlerRun, HandlerRuns
from pulljobs.worker.shared_state import SharedState
from pulljobs.worker.watchdog import CANCEL_GRACE, GROWTH, Watchdog, resident_bytes
from tests.sessions import PATIENCE_SECONDS, wait_until
from tests.worker.claiming import limits, unclaimed


def watchdog_of(runs: HandlerRuns, reasons: list[str], done: int = 1, **changed: Any) -> Watchdog:
    return Watchdog(
        limits(**changed), blank(), runs, [], lambda patience: None, lambda: done, reasons.append
    )


def blank() -> SharedState:
    return SharedState.allocate(multiprocessing.get_context("spawn"), 1)


def test_a_process_that_never_reached_the_database_is_not_ready_soon_after_a_boot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The monotonic clock begins with the boot: the time 0 may be a second ago."""
    state = blank()
    with monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", lambda: 1.0)
        before = state.is_ready(60.0)
        state.note_reached()
        after = state.is_ready(60.0)
    assert (before, after) == (False, True)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"MAX_JOBS": 5}, "5 jobs"),
        ({"MAX_JOBS": 6}, ""),
        ({"MAX_MEMORY": 2**20}, "MiB"),
        ({"MAX_MEMORY": 2**40}, ""),
    ],
)
def test_a_worn_process_retires_once(changed: dict[str, int], reason: str) -> None:
    reasons: list[str] = []
    watchdog = watchdog_of(HandlerRuns(), reasons, done=5, **changed)
    watchdog.tick()
    watchdog.tick()
    assert len(reasons) == bool(reason)
    assert reason in "".join(reasons)


def test_a_process_that_has_done_nothing_is_not_worn() -> None:
    """A process that has done no job is not replaced, however much memory it needs."""
    reasons: list[str] = []
    watchdog_of(HandlerRuns(), reasons, done=0, MAX_MEMORY=1).tick()
    assert reasons == []
    assert resident_bytes() > 2**20


def test_a_process_retires_when_all_its_threads_are_stuck_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs, reasons = HandlerRuns(), list[str]()
    cancelled: list[HandlerRun] = []
    watchdog = watchdog_of(runs, reasons, CONCURRENCY=2)
    for number in range(2):
        runs.begin(unclaimed(number), runs.slot(number, cancelled.append), time.monotonic())
    first, second = runs.current()
    assert first.cancel(CancelReason.TIMED_OUT)
    monkeypatch.setattr(module, "CANCEL_GRACE", 0)
    watchdog.tick()
    assert reasons == []
    monkeypatch.setattr(module, "CANCEL_GRACE", 600)
    assert second.cancel(CancelReason.LOST)
    watchdog.tick()
    assert reasons == [], "its handler may still react"
    monkeypatch.setattr(module, "CANCEL_GRACE", CANCEL_GRACE)
    wait_until(lambda: bool(watchdog.tick()) and bool(reasons))
    assert [run.job for run in cancelled] == [first.job, second.job]


def test_a_run_over_its_time_limit_and_a_run_near_its_hard_end_are_cancelled() -> None:
    runs: HandlerRuns = HandlerRuns()
    cancelled: list[HandlerRun] = []
    slow, bound, quick = map(unclaimed, range(3))
    for job, since in (slow, 10), (bound, 0), (quick, 0):
        runs.begin(job, runs.slot(0, cancelled.append), time.monotonic() - since)
    bound.hard_end = time.monotonic()
    watchdog_of(runs, [], HANDLER_TIMEOUT=timedelta(seconds=10)).tick()
    assert [run.job for run in cancelled] == [slow, bound]
    assert {run.job: run.cancel_reason for run in runs.current()}[quick] is None
    assert slow.lost


def test_a_process_is_unhealthy_only_after_several_bad_signs_in_a_row() -> None:
    """A process is unhealthy only after several bad signs, since a pause may give a single one."""
    is_unhealthy, shared_state = [True], blank()

    class Heart:
        def is_unhealthy(self, patience: float) -> bool:
            return is_unhealthy[0]

    def is_reported(passes: int) -> bool:
        for _pass in range(passes):
            watchdog.tick()
        return shared_state.is_unhealthy(0, PATIENCE_SECONDS)

    watchdog = Watchdog(
        limits(), shared_state, HandlerRuns(), [Heart()], lambda _: None, lambda: 0, lambda _: None
    )
    assert not is_reported(OBSERVATIONS - 1)
    is_unhealthy[0] = False
    assert not is_reported(1)
    is_unhealthy[0] = True
    assert not is_reported(OBSERVATIONS - 1)
    assert is_reported(1)
    is_unhealthy[0] = False
    assert not is_reported(1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_loop_that_hangs_or_whose_thread_died_is_unhealthy() -> None:
    class Hangs:
        def __init__(self) -> None:
            self.go_on = threading.Event()

        def tick(self) -> float:
            self.go_on.wait()
            raise SystemExit

    loop = Hangs()
    runner = Runner("test", loop)
    assert not runner.is_unhealthy(0), "it has not started"
    runner.start()
    wait_until(lambda: runner.is_unhealthy(0.01))
    assert not runner.is_unhealthy(60)
    loop.go_on.set()
    assert runner.join(PATIENCE_SECONDS)
    assert runner.is_unhealthy(60)


class Garbage:
    """Object that only the garbage collector frees."""

    def __init__(self) -> None:
        self.itself = self


def test_garbage_is_collected_when_the_process_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    """Garbage is collected once the process has grown, as few objects may hold gigabytes."""
    size = 0
    monkeypatch.setattr(module, "resident_bytes", lambda: size)
    watchdog = watchdog_of(HandlerRuns(), [])
    watchdog.tick()
    gc.disable()
    try:
        garbage = weakref.ref(Garbage())
        size = GROWTH - 1
        watchdog.tick()
        assert garbage() is not None
        size = GROWTH
        watchdog.tick()
        assert garbage() is None
    finally:
        gc.enable()
