"""Throttle of a consumer, as one process knows it, and how handlers ask for it."""

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pulljobs.engine.throttle import Throttle
from pulljobs.errors import Retry
from tests.worker.claiming import unclaimed

HOUR = timedelta(hours=1)


def test_no_job_starts_before_the_time_that_a_handler_asks_for() -> None:
    job = unclaimed(lease_duration=3 * HOUR.total_seconds())
    assert not job.is_late_at(time.monotonic())
    job.throttle(HOUR)
    now = time.monotonic()
    assert job.is_late_at(now)
    assert not job.is_late_at(now + HOUR.total_seconds())


def test_a_time_is_asked_for_by_the_clock_of_the_process() -> None:
    job = unclaimed(lease_duration=3 * HOUR.total_seconds())
    job.throttle(datetime.now(UTC) + HOUR)
    now = time.monotonic()
    assert job.is_late_at(now + HOUR.total_seconds() - 60)
    assert not job.is_late_at(now + HOUR.total_seconds())


@pytest.mark.parametrize("wait", [timedelta(), -HOUR, datetime(2020, 1, 1, tzinfo=UTC)])
def test_a_time_that_is_over_throttles_nothing(wait: Any) -> None:
    job = unclaimed()
    job.throttle(wait)
    assert not job.is_late_at(time.monotonic())


@pytest.mark.parametrize(
    ("wait", "kind", "text"),
    [
        (5, TypeError, "needs a timedelta or a datetime, not 5"),
        (datetime(2030, 1, 1), ValueError, "give it a time zone"),  # noqa: DTZ001
        (timedelta(days=40_000), ValueError, "at most 100 years"),
    ],
)
def test_other_times_are_refused(wait: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        unclaimed().throttle(wait)


def test_a_retry_that_throttles_needs_a_delay() -> None:
    with pytest.raises(ValueError, match="must be True, False or .key., not 'keys'"):
        Retry(after=timedelta(seconds=1), throttle="keys")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(ValueError, match="throttle=True needs after"):
        Retry(throttle=True)


def test_the_longest_time_is_written_and_its_rest_counts() -> None:
    asked: list[Throttle] = []
    throttle = Throttle(1, asked.append)
    assert not throttle.is_unwritten
    throttle.ask(60)
    throttle.ask(10)
    assert (asked, throttle.is_unwritten) == ([throttle, throttle], True)
    end = throttle.unwritten_until
    assert 50 < end - time.monotonic() <= 60
    throttle.note_written(end)
    assert not throttle.is_unwritten


def test_a_time_that_is_asked_for_while_another_is_written_is_written_later() -> None:
    throttle = Throttle(1)
    throttle.ask(10)
    end = throttle.unwritten_until
    throttle.ask(60)
    throttle.note_written(end)
    assert throttle.is_unwritten


def test_claims_say_whether_the_throttle_goes_on() -> None:
    throttle, before = Throttle(1), time.monotonic()
    throttle.ask(60)
    throttle.note_claimed(time.monotonic())
    assert throttle.until > time.monotonic()  # It is not written, so the claim did not respect it.
    throttle.note_written(throttle.unwritten_until)
    throttle.note_claimed(before)
    assert throttle.until > time.monotonic()  # The claim began before the throttle was written.
    throttle.note_refused(10)
    assert time.monotonic() < throttle.until <= time.monotonic() + 10
    throttle.note_claimed(time.monotonic())
    assert throttle.until == 0
