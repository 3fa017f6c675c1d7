"""Loop runner: threads, wake-up, pauses after errors, and stopping."""

import threading
import time
from collections.abc import Iterator

import pytest
from django.db import ProgrammingError
from psycopg.errors import UndefinedTable

from pulljobs.engine import telemetry
from pulljobs.engine.telemetry import LoopFailed
from pulljobs.loops import FIRST_PAUSE, JITTER, QUIET, Runner
from tests.sessions import PATIENCE_SECONDS, wait_until

FOREVER = 1000.0
TRIES = 10
"""Number of attempts at a check that fails if a busy machine is too slow."""


class Ticks:
    """Loop that notes the times of its ticks. The first `failures` ticks fail."""

    def __init__(self, pause: float = FOREVER, failures: int = 0) -> None:
        self.pause, self.failures = pause, failures
        self.at: list[float] = []
        self.thread: threading.Thread | None = None

    def tick(self) -> float:
        self.at.append(time.monotonic())
        self.thread = threading.current_thread()
        if self.failures:
            self.failures -= 1
            raise ValueError("no luck\nDETAIL:  Failing row contains (secret).")
        return self.pause

    @property
    def gaps(self) -> list[float]:
        return [later - earlier for earlier, later in zip(self.at, self.at[1:], strict=False)]


def running(loop: Ticks) -> Runner:
    runner = Runner("test", loop)
    runner.start()
    return runner


def end(runner: Runner) -> None:
    runner.stop()
    assert runner.join(PATIENCE_SECONDS)


@pytest.fixture
def reports() -> Iterator[list[LoopFailed]]:
    failures: list[LoopFailed] = []

    def record(event: object) -> None:
        if isinstance(event, LoopFailed):
            failures.append(event)

    end = telemetry.record_with(record)
    yield failures
    end()


def test_a_stop_before_the_start_counts() -> None:
    loop = Ticks()
    runner = Runner("test", loop)
    runner.stop()
    assert runner.join(0)
    runner.start()
    assert runner.join(PATIENCE_SECONDS)
    assert loop.at == []


def test_stop_ends_the_wait_and_a_second_is_harmless() -> None:
    loop = Ticks()
    runner = running(loop)
    wait_until(lambda: bool(loop.at))
    assert not runner.join(0)
    runner.stop()
    runner.stop()
    assert runner.join(PATIENCE_SECONDS)
    runner.stop()
    assert len(loop.at) == 1


def test_wake_ends_the_wait() -> None:
    loop = Ticks()
    runner = running(loop)
    for passes in (1, 2, 3):
        wait_until(lambda passes=passes: len(loop.at) == passes)  # type: ignore[misc]  # mypy can't type a default
        runner.wake()
    wait_until(lambda: len(loop.at) == 4)
    end(runner)


def test_wake_during_a_pass_is_not_lost() -> None:
    class WakesItself(Ticks):
        def tick(self) -> float:
            runner.wake()
            return super().tick() if len(self.at) < 4 else FOREVER

    loop = WakesItself()
    runner = Runner("test", loop)
    runner.start()
    wait_until(lambda: len(loop.at) == 4)
    end(runner)


def test_pauses_have_jitter_below_the_requested_time() -> None:
    loop = Ticks(pause=0.02)
    runner = running(loop)
    wait_until(lambda: len(loop.at) > 20)
    end(runner)
    assert min(loop.gaps) >= 0.02 * (1 - JITTER)
    assert max(loop.gaps) - min(loop.gaps) > 0.001


def test_errors_cause_longer_and_longer_pauses_until_a_pass_succeeds(
    reports: list[LoopFailed],
) -> None:
    loop = Ticks(pause=0, failures=4)
    runner = running(loop)
    wait_until(lambda: len(loop.at) > 5)
    for failure, gap in enumerate(loop.gaps[:4]):
        assert gap >= FIRST_PAUSE * 2**failure * 0.5
    assert any(_fails_again(loop) < FIRST_PAUSE * 2 for _try in range(TRIES)), "it starts over"
    end(runner)


def _fails_again(loop: Ticks) -> float:
    """Let the loop fail once more. Return the longest pause since then, in seconds."""
    ticks, loop.failures = len(loop.at), 1
    wait_until(lambda: loop.failures == 0 and len(loop.at) > ticks + 2)
    return max(loop.gaps[ticks - 1 :])


def test_failures_are_reported_once_a_second_at_most(reports: list[LoopFailed]) -> None:
    """A failing loop emits at most one report each second, however often its passes fail."""
    loop = Ticks(pause=0, failures=3)
    runner = running(loop)
    wait_until(lambda: loop.failures == 0)
    end(runner)
    assert 1 <= len(reports) <= 1 + (loop.at[-1] - loop.at[0]) / QUIET
    assert {(report.loop, report.error) for report in reports} == {("test", "ValueError: no luck")}


def test_a_loop_that_can_not_prepare_says_so_and_begins_its_passes(
    reports: list[LoopFailed],
) -> None:
    loop = Ticks()
    runner = Runner("test", loop, prepare=lambda: [].pop())
    runner.start()
    wait_until(lambda: bool(loop.at))
    end(runner)
    assert [report.error for report in reports] == ["IndexError: pop from empty list"]


@pytest.mark.django_db(transaction=True)
def test_a_loop_without_its_tables_says_how_to_create_them(reports: list[LoopFailed]) -> None:
    loop = Ticks()
    runner = Runner("test", loop, prepare=lack_a_table)
    runner.start()
    wait_until(lambda: bool(loop.at))
    end(runner)
    assert "no such table" in reports[0].error
    assert "run manage.py migrate" in reports[0].error


def lack_a_table() -> None:
    raise ProgrammingError("no such table") from UndefinedTable()


def test_a_loop_that_is_about_to_start_is_not_reported_dead() -> None:
    """A loop whose thread has not started yet is reported as alive and healthy."""
    runner = Runner("test", Ticks())
    assert runner.report()["alive"]
    assert not runner.is_unhealthy(0)


def test_the_report_shows_when_the_last_pass_ended() -> None:
    runner = running(Ticks(pause=60))
    wait_until(lambda: runner.report()["in_pass_seconds"] is None)
    report = runner.report()
    assert report["alive"]
    assert report["last_pass_seconds"] < 20
    end(runner)
    assert not runner.report()["alive"]
    assert not runner.is_unhealthy(0), "it was stopped"


def test_first_passes_of_many_loops_are_spread() -> None:
    """The first passes of 50 loops spread over half the interval, never many at the same time."""
    assert any(_are_spread() for _try in range(TRIES))


def _are_spread() -> bool:
    loops = [Ticks(pause=60) for _ in range(50)]
    runners = [Runner("test", loop, spread=0.9) for loop in loops]
    started = time.monotonic()
    for runner in runners:
        runner.start()
    wait_until(lambda: all(loop.at for loop in loops))
    after = sorted(loop.at[0] - started for loop in loops)
    for runner in runners:
        end(runner)
    together = max(sum(at <= later < at + 0.05 for later in after) for at in after)
    return after[-1] - after[0] > 0.45 and together <= 10 + 5
