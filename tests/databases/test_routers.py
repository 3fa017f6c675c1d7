"""Alias of the database of jobs, its router, and the checks of projects that route elsewhere."""

import ast
import re
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.checks import run_checks
from django.core.checks.registry import registry
from django.core.management import call_command
from django.db import connections, router
from django.test import override_settings

from example_project.state import BASE_DIR
from pulljobs import routers
from pulljobs.hooks import app_labels
from pulljobs.models import Consumer, Job
from pulljobs.storage import schema

OTHER = "jobs"
UNNAMED = re.compile(
    r"transaction\.(atomic|on_commit|set_rollback|savepoint\w*)\((?!.*using)", re.DOTALL
)
ROUTER = "pulljobs.routers.PulljobsRouter"


class Replica:
    def db_for_read(self, model: Any, **hints: Any) -> str:
        return "default"


class NoMigrations:
    def allow_migrate(self, db: str, app_label: str, **hints: Any) -> bool | None:
        return False if db == OTHER else None


@pytest.fixture(autouse=True)
def _two_databases(only_own_checks: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Configure a second database alias, to which nothing connects."""
    monkeypatch.setitem(connections.settings, OTHER, {**connections.settings["default"]})
    # Runs over a second database leave this check out, for it would warn in every test.
    known = {*registry.registered_checks, routers.check_transactions}
    monkeypatch.setattr(registry, "registered_checks", known)


def problems(*routers: str, using: str = OTHER) -> dict[str, str]:
    with override_settings(PULLJOBS={"DATABASE": using}, DATABASE_ROUTERS=routers):
        return {
            str(problem.id): problem.msg
            for problem in run_checks()
            if "pulljobs" in str(problem.id)
        }


def test_the_router_leads_models_and_migrations_to_the_alias() -> None:
    with override_settings(PULLJOBS={"DATABASE": OTHER}, DATABASE_ROUTERS=[ROUTER]):
        assert {router.db_for_read(Job), router.db_for_write(Consumer)} == {OTHER}
        assert router.db_for_write(User) == "default"
        assert router.allow_migrate(OTHER, "pulljobs")
        assert not router.allow_migrate("default", "pulljobs")
        assert router.allow_migrate("default", "auth")


def test_with_the_router_checks_report_only_the_transactions() -> None:
    assert list(problems(ROUTER)) == ["pulljobs.I001"]
    assert problems(ROUTER, using="default") == {}


def test_an_alias_without_a_router_is_an_error() -> None:
    messages = problems()
    assert "send writes of pulljobs' models to default" in messages["pulljobs.E016"]
    assert "as well, where no worker looks" in messages["pulljobs.W007"]


def test_a_replica_to_read_from_is_an_error() -> None:
    """A router that reads jobs from a replica is an error, as a claim must read what it locks."""
    assert "send reads" in problems(f"{__name__}.Replica", ROUTER)["pulljobs.E016"]


def test_a_database_that_is_not_migrated_is_an_error() -> None:
    assert (
        "no migration of pulljobs run in 'jobs'"
        in problems(f"{__name__}.NoMigrations")["pulljobs.E017"]
    )


@pytest.mark.django_db
def test_migrations_elsewhere_make_no_table() -> None:
    """In databases other than that of the jobs, migrations create nothing."""
    with override_settings(PULLJOBS={"DATABASE": OTHER}, DATABASE_ROUTERS=[ROUTER]):
        assert "CREATE" not in call_command("sqlmigrate", "pulljobs", "0001", stdout=StringIO())


def test_advice_to_migrate_another_database_names_the_apps() -> None:
    """Advice to migrate another database names the apps, so that no others get tables there."""
    with override_settings(PULLJOBS={"DATABASE": OTHER}):
        text = schema.how_to_migrate(OTHER)
    assert "run manage.py migrate APP --database jobs for each of pulljobs" in text
    assert all(label in text for label in app_labels)


def test_the_product_always_names_its_database() -> None:
    """No module uses a connection or transaction without an alias, which would be `default`."""
    files = sorted((BASE_DIR / "pulljobs").rglob("*.py"))
    assert not [f"{file.name}:{line}" for file in files for line in unnamed(file)]


def unnamed(file: Path) -> Iterator[int]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Call) and UNNAMED.match(ast.unparse(node)):
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "django.db":
            yield from (node.lineno for alias in node.names if alias.name == "connection")
