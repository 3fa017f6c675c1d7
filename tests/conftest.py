import faulthandler
import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest
from django.apps import apps
from django.db import OperationalError, connection, connections
from django.db.models.signals import post_migrate
from django.test import TransactionTestCase
from pytest_django import DjangoDbBlocker

from tests import second
from tests.emptying import empty_tables
from tests.sessions import session, wait_until

if second.IS_ON:
    second.prepare()

PROCESSES_PER_CORE = 2  # many tests wait for processes of their own


def pytest_xdist_auto_num_workers() -> int:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return PROCESSES_PER_CORE * (cores or 1)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Keep the garbage collector from examining the modules of tests, which live until the end.

    It would take a quarter of the time of the collection, and seconds when pytest ends.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the tests: those with Spark, then groups of xdist, then slow tests, then the others.

    The longest start first, so that no process of xdist works alone at the end. With
    PULLJOBS_TEST_EVERY, the tests that it does not choose are dropped.
    """
    every = int(os.environ.get("PULLJOBS_TEST_EVERY") or 1)
    if every > 1:
        chosen = set(sorted(item.nodeid for item in items)[::every])
        chosen |= {item.nodeid for item in items if item.get_closest_marker("always")}
        # In the order of pytest, which makes each fixture of a module once.
        items[:] = [item for item in items if item.nodeid in chosen]
    longest = ("spark", "xdist_group", "slow")
    groups: dict[str, int] = {}
    items.sort(
        key=lambda item: (
            [item.get_closest_marker(name) is None for name in longest],
            # A group shares what it takes long to make, without xdist, too.
            groups.setdefault(_group(item), len(groups)),
        )
    )
    if second.IS_ON:
        second.open_to(items)


def _group(item: pytest.Item) -> str:
    """Return the name of the group of xdist that the test belongs to, or an empty one."""
    marker = item.get_closest_marker("xdist_group")
    return str(marker.args[0]) if marker else ""


HARD_LIMIT_SECONDS = 780
"""Time after which a test ends its process: its own limit (`timeout` in pyproject.toml) failed."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Iterator[None]:
    faulthandler.dump_traceback_later(HARD_LIMIT_SECONDS, exit=True)
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


def pytest_runtest_setup(item: pytest.Item) -> None:
    is_pooled = connection.settings_dict["DISABLE_SERVER_SIDE_CURSORS"]
    if is_pooled and item.get_closest_marker("own_session"):
        pytest.skip("needs a server connection of its own, but DATABASE_URL is a pooler")
    if second.IS_ON:
        second.log_in(is_owner=item.get_closest_marker("owner") is not None)


def pytest_report_header() -> str:
    try:
        # A connection of psycopg, because pytest-django forbids Django's outside of tests.
        with psycopg.connect(**connections["default"].get_connection_params()) as direct:
            version = direct.info.parameter_status("server_version")
    except (OperationalError, psycopg.OperationalError) as error:
        return f"database: none, {error}"
    return f"database: PostgreSQL {version} at {connections['default'].settings_dict['HOST']}"


@pytest.fixture(autouse=True, scope="session")
def _tables_are_emptied_quickly() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty_tables)
        yield


@pytest.fixture(autouse=True)
def _no_reaper_stays() -> Iterator[None]:
    """End the reaper that a request of the test started: it would reap in the tests that follow.

    The reaper also counts settlements and commits its progress, which is deleted here.
    """
    yield
    reaping = sys.modules.get("pulljobs.api.reaping")
    if reaping is None or reaping.NAME not in _threads():
        return
    reaping.close()  # waits for a few seconds, but a pass may take longer
    wait_until(lambda: reaping.NAME not in _threads())
    with session() as other:
        other.execute(FORGET_PROGRESS)
        other.commit()


FORGET_PROGRESS = """
DELETE FROM pulljobs_count_progress
WHERE id IN (SELECT id FROM pulljobs_count_progress FOR UPDATE SKIP LOCKED)
"""


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


@pytest.fixture(scope="session")
def django_db_modify_db_settings(django_db_modify_db_settings: None) -> None:
    """Keep Django from creating the channels that handlers declare, so that tables begin empty."""
    sender = apps.get_app_config("pulljobs")
    post_migrate.disconnect(dispatch_uid="pulljobs.declared", sender=sender)


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: DjangoDbBlocker) -> Iterator[None]:
    with ExitStack() as entered:
        if second.IS_ON:
            with django_db_blocker.unblock():
                entered.enter_context(second.entered())
        yield
