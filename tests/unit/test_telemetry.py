"""Events reach their recorders, and a broken recorder breaks nothing else."""

import logging

import pytest

from pulljobs.engine.telemetry import JobFailed, JobsClaimed, emit, record_with


def test_a_recorder_that_fails_is_logged_and_the_others_get_the_event(
    caplog: pytest.LogCaptureFixture,
) -> None:
    received: list[object] = []

    def broken(event: object) -> None:
        raise RuntimeError("broken")

    ends = [record_with(broken), record_with(received.append)]
    try:
        with caplog.at_level(logging.ERROR, logger="pulljobs"):
            emit(JobsClaimed("files", "census", 3))
    finally:
        for end in ends:
            end()

    assert received == [JobsClaimed("files", "census", 3)]
    assert "A recorder failed over JobsClaimed." in caplog.text
    emit(JobsClaimed("files", "census", 1))
    assert len(received) == 1


def test_a_failure_is_logged_without_any_logging_configuration(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A failed job is logged as a warning, which Python shows even without `LOGGING`."""
    emit(JobFailed(7, "files", "census", "ValueError"))
    assert caplog.record_tuples == [
        ("pulljobs", logging.WARNING, "Job 7 of files/census failed: ValueError")
    ]
