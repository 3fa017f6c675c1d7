"""Test tools for projects that publish and handle jobs, without a worker, threads or waiting.

All of it uses the test's own connection. So it works in Django's TestCase, where every test is a
transaction that is rolled back, as well as in TransactionTestCase.
"""

from typing import Any

from pulljobs import hooks
from pulljobs.testing.draining import DrainedJob, drain
from pulljobs.testing.performing import PerformedJob, perform
from pulljobs.testing.publications import PublishedMessage, assert_published, published

__all__ = [
    "DrainedJob",
    "PerformedJob",
    "PublishedMessage",
    "assert_published",
    "drain",
    "perform",
    "published",
]


def __getattr__(name: str) -> Any:
    """Load a test tool that another app offers, such as `run_workflow`, when it is first used."""
    if name not in hooks.test_tools:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return hooks.load(hooks.test_tools[name])
