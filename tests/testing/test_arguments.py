"""Test tools refuse arguments with which a test would prove nothing, in one sentence."""

from collections.abc import Callable
from typing import Any

import pytest
from django.utils import timezone

from pulljobs.errors import ConfigurationError, InvalidMessage
from pulljobs.handlers import ClaimedJob
from pulljobs.testing import assert_published, crash_after, drain, perform, published, run_workflow
from pulljobs.workflows import Run, workflow
from tests.handling import registry_of_its_own

pytestmark = pytest.mark.django_db

PAIRS = "signals must be a mapping or pairs, "
TEXTS = "crash_after must be text or a list of texts, not "


def work(job: ClaimedJob) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"key": 5}, "key must be text"),
        ({"key": ""}, "key must be text"),
        ({"headers": ["a"]}, "headers must be a mapping"),
        ({"priority": "x"}, "priority must be a whole number"),
        ({"message_id": 5}, "message_id must be text"),
        ({"content_type": 5}, "content_type must be text"),
        ({"retry_count": "x"}, "retry_count must be a whole number from 0 on, not 'x'"),
        ({"deliveries": 0}, "deliveries must be a whole number from 1 on, not 0"),
        ({"deliveries": False}, "deliveries must be a whole number from 1 on, not False"),
        ({"published_at": "today"}, "published_at must be an aware datetime, not 'today'"),
        ({"published_at": timezone.now().replace(tzinfo=None)}, "must be an aware datetime"),
        ({"stopping": "no"}, "perform: stopping must be True or False, not 'no'"),
        ({"lost": None}, "perform: lost must be True or False, not None"),
    ],
)
def test_no_job_is_made_up_that_could_not_be_published(
    arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises((TypeError, InvalidMessage, ConfigurationError), match=message):
        perform(work, **arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: published(5), "channel must be text without NUL, not 5"),  # type: ignore[arg-type]  # the mistake
        (lambda: published("a\x00"), "channel must be text without NUL"),
        (lambda: assert_published("a", count="0"), "count must be a whole number from 0 on"),  # type: ignore[arg-type]  # the mistake
        (
            lambda: assert_published("a", count=0, kye="7"),
            "A message has no kye: its fields are id, payload, .*key, priority, message_id",
        ),
        (lambda: drain(rounds="x"), "rounds must be a whole number from 0 on, not 'x'"),  # type: ignore[arg-type]  # the mistake
    ],
)
def test_no_assertion_holds_because_of_a_mistake(call: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ConfigurationError), match=message):
        call()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"signals": ["x"]}, PAIRS + "and 'x' is no pair"),
        ({"signals": ["ab"]}, PAIRS + "and 'ab' is no pair"),
        ({"signals": [("a", "b", "c")]}, PAIRS + r"and \('a', 'b', 'c'\) is no pair"),
        ({"signals": "x"}, PAIRS + "not 'x'"),
        ({"signals": None}, PAIRS + "not None"),
        ({"crash_after": 5}, TEXTS + "5"),
        ({"crash_after": [5]}, TEXTS + r"\[5\]"),
        ({"max_claims": "x"}, "max_claims must be a whole number from 0 on, not 'x'"),
        ({"function": "run"}, "'run' is no workflow: decorate it with @workflow"),
    ],
)
def test_no_run_is_published_with_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with registry_of_its_own():

        @workflow(channel="sleepy", consumer="runs")
        def sleepy(run: Run) -> None:
            run.step("count", len, "sheep")

        with pytest.raises((TypeError, ConfigurationError), match=message):
            run_workflow(**{"function": sleepy, **arguments})
        tested = run_workflow(sleepy, signals=[["x", 1]], crash_after=(each for each in ["count"]))
        assert tested.crashes == 1
        assert len(published("sleepy")) == 1


def test_crashes_are_named_by_text() -> None:
    with pytest.raises(TypeError, match=TEXTS + r"\(5,\)"), crash_after(5):
        pass
