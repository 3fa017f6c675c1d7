"""The decorator that gives one task its own retries and time limit."""

from datetime import timedelta
from typing import Any

import pytest

from pulljobs import run_limits
from pulljobs.errors import ConfigurationError
from pulljobs.run_limits import RunLimits
from pulljobs.tasks_backend import handler, options, task_options


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"max_retries": -1}, "from 0 to 32767, not -1"),
        ({"max_retries": True}, "from 0 to 32767, not True"),
        ({"max_retries": "3"}, "from 0 to 32767, not '3'"),
        ({"retry_strategy": "often"}, "'often' is no retry strategy"),
        ({"timeout": 5}, "timeout must be a timedelta above 0, not 5"),
        ({"timeout": timedelta(0)}, "timeout must be a timedelta above 0"),
    ],
)
def test_options_that_cannot_work_are_refused_where_they_are_written(
    given: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        task_options(**given)


def test_the_decorator_without_parentheses_is_refused_with_advice() -> None:
    with pytest.raises(ConfigurationError, match=r"without options: write @task_options\("):

        @task_options
        def task() -> None: ...


def test_the_strategy_that_never_retries_means_no_retries() -> None:
    def function() -> None: ...

    assert options.limits_of(task_options(retry_strategy="none")(function)).max_retries == 0
    assert options.limits_of(print) == RunLimits()


def test_leases_last_as_long_as_the_longest_time_limit() -> None:
    before = run_limits.longest_timeout()
    limits = RunLimits(timeout=before + timedelta(hours=1))
    try:
        assert run_limits.longest_timeout() == limits.timeout
    finally:
        run_limits._timeouts.discard(before + timedelta(hours=1))


@pytest.mark.parametrize(
    "payload", [b"\xff", b"{}", b"[]", b'{"task": "no.such.task"}', b"[" * 9_000]
)
def test_a_message_that_is_no_task_has_no_limits(payload: bytes) -> None:
    assert handler.limits_of(payload) == RunLimits()
