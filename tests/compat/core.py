"""Tests that `test_without_lake` runs where the lake is not installed."""

from io import StringIO

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client, override_settings

from pulljobs import hooks
from pulljobs.metrics.families import families_counted, families_read
from pulljobs.storage import grants
from tests.admin.conftest import browser_of
from tests.dashboard.test_page import read_dashboard

pytestmark = [pytest.mark.django_db, pytest.mark.always]


@pytest.fixture
def operator() -> Client:
    return browser_of(User.objects.create_superuser("olga"))


def test_there_is_neither_a_table_nor_a_command_nor_a_profile_of_the_lake() -> None:
    tables = connection.introspection.table_names()
    assert not {
        "pulljobs_lake_run",
        "pulljobs_rollup",
        "pulljobs_stream",
        "pulljobs_schedule",
        "pulljobs_batch",
    } & set(tables)
    assert hooks.app_labels == {"pulljobs"}
    assert "lake" not in grants.profiles()
    with pytest.raises(CommandError, match="invalid choice: 'lake'"):
        call_command("pulljobs", "lake", "export")


def test_the_dashboard_draws_every_range_and_names_neither_lake_nor_spark(
    operator: Client,
) -> None:
    page = read_dashboard(operator, range="week")
    for name in ("hour", "day", "week", "month"):
        assert f"?range={name}" in page
    assert "lake" not in page.lower()
    assert "Spark" not in page


def test_there_is_no_trace_of_schedules_in_any_surface(operator: Client) -> None:
    pages = operator.get("/admin/").content.decode() + read_dashboard(operator)
    assert "schedules" not in pages.lower()
    assert operator.get("/admin/pulljobs_schedules/schedule/").status_code == 404
    for method, path in (("GET", "/schedules"), ("PUT", "/schedule/daily")):
        assert operator.generic(method, path).status_code == 404
    document = operator.get("/openapi.json").json()
    assert not [path for path in document["paths"] if path.startswith("/schedule")]
    families = [family.name for family in (*families_counted(), *families_read())]
    assert not [
        name for name in families if name.startswith(("pulljobs_schedule_", "pulljobs_slot"))
    ]
    with pytest.raises(CommandError, match="invalid choice: 'schedules'"):
        call_command("pulljobs", "schedules", "list")


@override_settings(PULLJOBS={"LAKE": "/lake"})
def test_a_lake_without_its_app_is_an_error() -> None:
    """A LAKE setting without the app `pulljobs.lake` is an error of the system checks."""
    errors = StringIO()
    with pytest.raises(Exception, match=r"pulljobs\.E026"):
        call_command("check", stderr=errors)
