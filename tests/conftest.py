import os
from collections.abc import Iterator

import psycopg
import pytest
from django.db import OperationalError, connection
from django.test import TransactionTestCase

from tests.emptying import empty_tables

PROCESSES_PER_CORE = 2  # many tests wait for processes of their own


def pytest_xdist_auto_num_workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return PROCESSES_PER_CORE * (cores or 1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long tests start first, in their random order, so that none is left alone at the end."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_report_header() -> str:
    try:
        # Not a connection of Django's: pytest-django forbids those outside of tests.
        with psycopg.connect(**connection.get_connection_params()) as direct:
            version = direct.info.parameter_status("server_version")
    except (OperationalError, psycopg.OperationalError) as error:
        return f"database: none, {error}"
    return f"database: PostgreSQL {version} at {connection.settings_dict['HOST']}"


@pytest.fixture(autouse=True, scope="session")
def _tables_are_emptied_quickly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty_tables)
        yield
