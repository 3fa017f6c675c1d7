"""Fixtures for tests of the lake that start no Spark session."""

from tests.admin.conftest import consumer, operator, reader
from tests.dashboard.conftest import patience

__all__ = ["consumer", "operator", "patience", "reader"]
