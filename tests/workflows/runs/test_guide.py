"""The code of the guide on workflows works."""

import unittest
from collections.abc import Iterator
from types import ModuleType

import pytest
from django.contrib.auth.models import Group

from pulljobs import handlers
from pulljobs.models import Job
from pulljobs.states import State
from pulljobs.testing import drain
from pulljobs.workflows.models import WorkflowStep
from tests.guides import forget, modules_of


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    try:
        yield modules_of("guides/workflows.md")
    finally:
        forget("fulfilment")


@pytest.mark.django_db(transaction=True)
def test_an_order_is_booked_once_and_waits_for_its_approval(code: dict[str, ModuleType]) -> None:
    handlers.sync_consumers()
    ordering = code["fulfilment.ordering"]
    run_id = ordering.place(7)
    [sleeps] = drain()
    assert sleeps.job.state == State.QUEUED
    WorkflowStep.objects.filter(name="cool-off").update(due_at="2026-01-01T00:00:00Z")
    Job.objects.update(available_at="2026-01-01T00:00:00Z")
    drain()
    ordering.approve(run_id, "olga")
    [ran] = drain()
    assert ran.job.result == {"booking": Group.objects.get().pk, "by": "olga", "parcel": "parcel 7"}


@pytest.mark.django_db
def test_the_test_of_the_guide_passes(code: dict[str, ModuleType]) -> None:
    case = code["fulfilment.tests"].FulfilTest("test_it_books_once_whatever_crashes")
    result = unittest.TestResult()
    case.run(result)
    assert result.wasSuccessful(), result.errors or result.failures
