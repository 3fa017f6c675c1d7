"""The loop runner: threads, wake-up, error back-off and stopping, once for all loops."""

import threading
import time
from collections.abc import Iterator

import pytest

from pulljobs.engine import telemetry
from pulljobs.engine.telemetry import LoopFailed
from pulljobs.worker.loop import FIRST_PAUSE, JITTER, QUIET, Runner
from tests.sessions import PATIENCE_SECONDS, wait_until

FOREVER = 1000.0
TRIES = 10
"""Of what a busy machine may do late."""


class Ticks:
    """A loop that notes when it is ticked; it fails as often as it is told to."""

    def __init__(self, pause: float = FOREVER, failures: int = 0) -> None:
        self.pause, self.failures = pause, failures
        self.at: list[float] = []
        self.thread: threading.Thread | None = None

    def tick(self) -> float:
        self.at.append(time.monotonic())
        self.thread = threading.current_thread()
        if self.failures:
            self.failures -= 1
            raise ValueError("no luck")
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
    heard: list[LoopFailed] = []

    def note_work(event: object) -> None:
        if isinstance(event, LoopFailed):
            heard.append(event)

    end = telemetry.record_with(note_work)
    yield heard
    end()


def test_stop_before_the_start_is_kept() -> None:
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


def test_pauses_have_jitter_below_what_the_loop_says() -> None:
    loop = Ticks(pause=0.02)
    runner = running(loop)
    wait_until(lambda: len(loop.at) > 20)
    end(runner)
    assert min(loop.gaps) >= 0.02 * (1 - JITTER)
    assert max(loop.gaps) - min(loop.gaps) > 0.001


def test_errors_pause_longer_and_longer_until_a_pass_succeeds(reports: list[LoopFailed]) -> None:
    loop = Ticks(pause=0, failures=4)
    runner = running(loop)
    wait_until(lambda: len(loop.at) > 5)
    for failure, gap in enumerate(loop.gaps[:4]):
        assert gap >= FIRST_PAUSE * 2**failure * 0.5
    assert any(_fails_again(loop) < FIRST_PAUSE * 2 for _try in range(TRIES)), "it starts anew"
    end(runner)


def _fails_again(loop: Ticks) -> float:
    """The longest gap over a failure."""
    ticks, loop.failures = len(loop.at), 1
    wait_until(lambda: loop.failures == 0 and len(loop.at) > ticks + 2)
    return max(loop.gaps[ticks - 1 :])


def test_failures_are_told_once_a_second_at_most(reports: list[LoopFailed]) -> None:
    """But for a second that went by, of which a busy machine needs more."""
    loop = Ticks(pause=0, failures=3)
    runner = running(loop)
    wait_until(lambda: loop.failures == 0)
    end(runner)
    assert 1 <= len(reports) <= 1 + (loop.at[-1] - loop.at[0]) / QUIET
    assert {(one.loop, one.error) for one in reports} == {("test", "ValueError: no luck")}


def test_loop_that_is_about_to_start_is_not_reported_dead() -> None:
    """The loops that start first report of all."""
    runner = Runner("test", Ticks())
    assert runner.report()["alive"]
    assert not runner.is_unhealthy(0)


def test_report_tells_when_the_last_pass_ended() -> None:
    runner = running(Ticks(pause=60))
    wait_until(lambda: runner.report()["in_pass_seconds"] is None)
    report = runner.report()
    assert report["alive"]
    assert report["last_pass_seconds"] < 20
    end(runner)
    assert not runner.report()["alive"]
    assert not runner.is_unhealthy(0), "it was asked to end"


def test_first_passes_of_many_are_spread() -> None:
    """50 that are started together: over a third of the interval, never many in one instant."""
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
    together = max(sum(at <= other < at + 0.05 for other in after) for at in after)
    return after[-1] - after[0] > 0.45 and together <= 10 + 5
