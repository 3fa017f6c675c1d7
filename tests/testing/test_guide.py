"""The guide's own tests pass."""

import unittest
from collections.abc import Iterator
from types import ModuleType

import pytest

from pulljobs.apps import create_declared
from tests.factories import USING
from tests.guides import forget, modules_of


@pytest.fixture
def modules(registry: None, transactional_db: None) -> Iterator[dict[str, ModuleType]]:
    try:
        modules = modules_of("guides/testing.md")
        create_declared(using=USING)  # As `migrate` does when the database of tests is made.
        yield modules
    finally:
        forget("orders")


@pytest.mark.django_db(transaction=True)
def test_tests_of_the_guide_pass(modules: dict[str, ModuleType]) -> None:
    suite = unittest.TestSuite(
        unittest.defaultTestLoader.loadTestsFromModule(module) for module in modules.values()
    )
    result = unittest.TestResult()
    suite.run(result)
    assert not result.errors + result.failures
    assert result.testsRun == 7
