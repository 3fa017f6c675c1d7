"""Detection of a database clock that was set back, by a monotonic clock."""

from datetime import UTC, datetime, timedelta

import pytest

from pulljobs.engine.clocks import Watch

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("database", "own", "is_set_back"),
    [
        (1.0, 1.0, False),
        (1.01, 1.0, False),  # the round trip takes time
        (0.9995, 1.0, False),  # two clocks never run at exactly equal speed
        (3600.0, 1.0, False),  # set ahead: nothing was written in between
        (0.5, 1.0, True),
        (-0.5, 0.001, True),
        (0.0005, 0.001, False),
        (599.0, 600.0, True),
    ],
)
def test_a_clock_on_which_less_time_passed_was_set_back(
    database: float, own: float, is_set_back: bool
) -> None:
    watch = Watch()
    assert not watch.observe(START, asked=10.0, answered=10.0)
    at = START + timedelta(seconds=database)
    asked = 10.0 + own
    assert watch.observe(at, asked=asked, answered=asked + 0.1) is is_set_back


def test_the_duration_of_a_statement_is_no_step() -> None:
    """A clock is not reported as set back if the statements that read it took long."""
    watch = Watch()
    watch.observe(START, asked=10.0, answered=15.0)
    assert not watch.observe(START + timedelta(seconds=0.1), asked=15.0, answered=20.0)


def test_a_step_is_reported_once() -> None:
    watch = Watch()
    watch.observe(START, asked=0.0, answered=0.0)
    assert watch.observe(START, asked=1.0, answered=1.0)
    assert not watch.observe(START + timedelta(seconds=1), asked=2.0, answered=2.0)
