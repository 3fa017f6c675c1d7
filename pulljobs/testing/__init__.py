"""Helpers for tests of projects that publish and handle jobs: no worker, no thread, no waiting.

Everything runs on the test's own connection. So it works in Django's TestCase, which rolls one
transaction back, and in TransactionTestCase.
"""

from pulljobs.testing.draining import Ran, drain
from pulljobs.testing.performing import Performed, perform
from pulljobs.testing.publications import PublishedMessage, assert_published, published

__all__ = [
    "Performed",
    "PublishedMessage",
    "Ran",
    "assert_published",
    "drain",
    "perform",
    "published",
]
