"""Tests with the tables of pulljobs in a second database, as a role that owns none of them.

`PULLJOBS_TEST_SECOND=1` turns it on. The role has the rights that `pulljobs grants`
prints and no others. Statements of a test itself run as the owner. The marker `owner` names tests
of actions that only the owner may do.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

import django.db
import psycopg
import pytest
from django.core.checks.registry import registry
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.test import TransactionTestCase
from psycopg import sql

from pulljobs import conf, routers
from pulljobs.storage import grants

IS_ON: Final = os.environ.get("PULLJOBS_TEST_SECOND") == "1"
ALIAS: Final = "jobs"
NOT: Final = {"PULLJOBS_TEST_SECOND": "", "JOBS_DATABASE": ""}
"""Environment of processes that use one database of their own."""


def prepare() -> None:
    """Let tests that name no database use that of the jobs. It is called before any test."""
    TransactionTestCase.databases = {"default", ALIAS}
    load = conf.load
    conf.load = lambda given: load(_placed(given))  # settings of a test name no database
    vars(django.db.connection)["_alias"] = ALIAS
    registry.registered_checks.discard(routers.check_transactions)  # it warns of exactly this


def _placed(given: Any) -> Any:
    return {"DATABASE": ALIAS, **given} if isinstance(given, dict) else given


def open_to(items: Iterable[pytest.Item]) -> None:
    """Allow both databases in every test that may use one of them."""
    for item in items:
        if (marker := item.get_closest_marker("django_db")) and "databases" not in marker.kwargs:
            both = pytest.mark.django_db(*marker.args, **marker.kwargs, databases="__all__")
            item.add_marker(both, append=False)


@contextmanager
def entered() -> Iterator[None]:
    """Create the role, grant its rights and use it within the block, and the owner afterwards."""
    known = connections[ALIAS].settings_dict
    owner, role = known["USER"], f"{known['NAME']}_role"
    _run(_made(role, owner))
    # Processes that tests start read these, too.
    os.environ |= {"JOBS_DATABASE": known["NAME"], "JOBS_OWNER": owner, "JOBS_APP": role}
    grant()
    log_in(is_owner=bool(os.environ["JOBS_AS_OWNER"]))
    yield
    log_in(is_owner=True)


def grant() -> None:
    """Grant the role its rights, as an owner does after every `migrate`."""
    if IS_ON:
        _run(grants.statements(ALIAS, os.environ["JOBS_APP"], "lake"))


def _run(statements: Iterable[str]) -> None:
    for text in statements:
        with connections[ALIAS].cursor() as cursor:
            cursor.execute(text)


def log_in(*, is_owner: bool) -> None:
    """Connect as the owner or as the granted role, in this process and in those that it starts."""
    os.environ["JOBS_AS_OWNER"] = "1" if is_owner else ""
    if "JOBS_OWNER" in os.environ:
        _become(os.environ["JOBS_OWNER" if is_owner else "JOBS_APP"])


def _made(role: str, owner: str) -> Iterator[str]:
    names = {"role": sql.Identifier(role), "owner": sql.Identifier(owner)}
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", [role])
        if not cursor.fetchone():
            yield sql.SQL("CREATE ROLE {role} LOGIN NOINHERIT").format(**names).as_string()
    # NOINHERIT: it has none of the owner's rights until a test sets the role.
    yield sql.SQL("GRANT {owner} TO {role}").format(**names).as_string()


def _become(role: str) -> None:
    known = connections[ALIAS].settings_dict
    if known["USER"] != role:
        known["USER"] = os.environ["JOBS_ROLE"] = role
        connections[ALIAS].close()


@contextmanager
def as_owner(connection: BaseDatabaseWrapper | Any) -> Iterator[None]:
    """Give this session the owner's role for the block."""
    if not IS_ON or connection.settings_dict["USER"] != os.environ["JOBS_APP"]:
        yield
        return
    _set_role(connection, "SET ROLE {}")
    try:
        yield
    finally:
        with suppress(django.db.DatabaseError, psycopg.Error):  # a rollback resets the role
            _set_role(connection, "RESET ROLE")


def _set_role(connection: Any, text: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql.SQL(text).format(sql.Identifier(os.environ["JOBS_OWNER"])))


def parameters(known: Mapping[str, Any]) -> dict[str, Any]:
    """Return these connection parameters with the owner of the tables as their user."""
    return {**known, "user": os.environ["JOBS_OWNER"]} if IS_ON else dict(known)
