from collections.abc import Iterator

import pytest
from django.core.signals import request_finished, request_started
from django.db import close_old_connections, connection
from pytest_django import DjangoDbBlocker

from tests.access.world import World
from tests.api.leases.serving import close_waiters
from tests.emptying import empty_tables


@pytest.fixture(scope="module")
def world(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[World]:
    """Commit a channel with jobs in every state and all credentials, once for a module of tests.

    The tests roll their own changes back.
    """
    with django_db_blocker.unblock():
        name = connection.settings_dict["NAME"]
        assert name.startswith("test_"), f"{name} is no database of tests: mark the module"
        try:
            # As Django's own test client does: a request leaves the test's connection open.
            for signal in (request_started, request_finished):
                signal.disconnect(close_old_connections)
            yield World.made()
        finally:
            close_waiters()
            for signal in (request_started, request_finished):
                signal.connect(close_old_connections)
            empty_tables()
