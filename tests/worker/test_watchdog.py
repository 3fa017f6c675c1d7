"""When a process had better end, and when it is not well."""

import multiprocessing
import threading
import time
from datetime import timedelta
from typing import Any

import pytest

from pulljobs.worker import watchdog as module
from pulljobs.worker.debounce import LOOKS
from pulljobs.worker.loop import Runner
from pulljobs.worker.runs import Ended, Run, Runs
from pulljobs.worker.shared_state import Board
from pulljobs.worker.watchdog import HEED, Watch, resident
from tests.sessions import PATIENCE_SECONDS, wait_until
from tests.worker.claiming import limits, unclaimed


def watching(runs: Runs, reasons: list[str], done: int = 1, **changed: Any) -> Watch:
    how = limits(**changed)
    return Watch(how, blank(), runs, [], lambda patience: None, lambda: done, reasons.append)


def blank() -> Board:
    return Board.shared(multiprocessing.get_context("spawn"), 1)


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"MAX_JOBS": 5}, "5 jobs"),
        ({"MAX_JOBS": 6}, ""),
        ({"MAX_MEMORY": 2**20}, "MiB"),
        ({"MAX_MEMORY": 2**40}, ""),
    ],
)
def test_worn_process_retires_once(changed: dict[str, int], reason: str) -> None:
    reasons: list[str] = []
    watch = watching(Runs(), reasons, done=5, **changed)
    watch.tick()
    watch.tick()
    assert len(reasons) == bool(reason)
    assert reason in "".join(reasons)


def test_process_that_has_done_nothing_is_not_worn() -> None:
    """However low the limit is: the next one would do nothing either."""
    reasons: list[str] = []
    watching(Runs(), reasons, done=0, MAX_MEMORY=1).tick()
    assert reasons == []
    assert resident() > 2**20


def test_process_retires_when_all_its_threads_are_stuck_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runs, reasons = Runs(), list[str]()
    told: list[Run] = []
    watch = watching(runs, reasons, CONCURRENCY=2)
    for number in range(2):
        runs.begin(unclaimed(number), runs.slot(number, told.append), time.monotonic())
    first, second = runs.now()
    assert first.cancel(Ended.TIMED_OUT)
    monkeypatch.setattr(module, "HEED", 0)
    watch.tick()
    assert reasons == []
    monkeypatch.setattr(module, "HEED", 600)
    assert second.cancel(Ended.LOST)
    watch.tick()
    assert reasons == [], "it may heed"
    monkeypatch.setattr(module, "HEED", HEED)
    wait_until(lambda: bool(watch.tick()) and bool(reasons))
    assert [run.job for run in told] == [first.job, second.job]


def test_run_over_its_time_is_ended_and_one_whose_lease_is_about_to_end() -> None:
    runs: Runs = Runs()
    ended: list[Run] = []
    slow, bound, quick = map(unclaimed, range(3))
    for job, since in (slow, 10), (bound, 0), (quick, 0):
        runs.begin(job, runs.slot(0, ended.append), time.monotonic() - since)
    bound.hard_end = time.monotonic()
    watching(runs, [], HANDLER_TIMEOUT=timedelta(seconds=10)).tick()
    assert [run.job for run in ended] == [slow, bound]
    assert {run.job: run.ended for run in runs.now()}[quick] is None
    assert slow.lost


def test_process_is_not_well_once_a_sign_is_sick_at_several_looks_in_a_row() -> None:
    """At one it may be the pause of all that the watch itself woke up from."""
    sick, board = [True], blank()

    class Heart:
        def is_sick(self, patience: float) -> bool:
            return sick[0]

    def is_told(looks: int) -> bool:
        for _look in range(looks):
            watch.tick()
        return board.is_sick(0, PATIENCE_SECONDS)

    watch = Watch(limits(), board, Runs(), [Heart()], lambda _: None, lambda: 0, lambda _: None)
    assert not is_told(LOOKS - 1)
    sick[0] = False
    assert not is_told(1)
    sick[0] = True
    assert not is_told(LOOKS - 1)
    assert is_told(1)
    sick[0] = False
    assert not is_told(1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_loop_that_hangs_in_a_pass_or_whose_thread_died_is_sick() -> None:
    class Hangs:
        def __init__(self) -> None:
            self.go_on = threading.Event()

        def tick(self) -> float:
            self.go_on.wait()
            raise SystemExit

    loop = Hangs()
    runner = Runner("test", loop)
    assert not runner.is_sick(0), "it has not begun"
    runner.start()
    wait_until(lambda: runner.is_sick(0.01))
    assert not runner.is_sick(60)
    loop.go_on.set()
    assert runner.join(PATIENCE_SECONDS)
    assert runner.is_sick(60)
