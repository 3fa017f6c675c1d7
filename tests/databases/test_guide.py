"""The code of the guide on databases works."""

from collections.abc import Iterator
from types import ModuleType
from typing import Final
from uuid import uuid4

import pytest
from django.contrib.auth.models import Group
from django.core.checks import run_checks
from django.db import DEFAULT_DB_ALIAS, connections, transaction
from django.test import override_settings

from example_project.state import BASE_DIR
from pulljobs.hooks import app_labels
from pulljobs.models import Channel, Message
from pulljobs.storage.grants import Profile
from tests.databases.test_grants import grant
from tests.guides import forget, modules_of, texts
from tests.sessions import query

GUIDES: Final = "docs/guides/databases.md", "docs/guides/separate-database.md"


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    try:
        yield modules_of("guides/separate-database.md") | modules_of("guides/databases.md")
    finally:
        forget("shop")


@pytest.mark.usefixtures("only_own_checks")
def test_its_settings_agree_with_each_other(
    code: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checks report nothing but pulljobs.I001, which the guide silences."""
    settings = code["shop.settings"]
    for alias, database in settings.DATABASES.items():
        given = {**connections.settings[DEFAULT_DB_ALIAS], **database}
        monkeypatch.setitem(connections.settings, alias, given)
    with override_settings(PULLJOBS=settings.PULLJOBS, DATABASE_ROUTERS=settings.DATABASE_ROUTERS):
        ids = {str(problem.id) for problem in run_checks()}
    assert {id for id in ids if id.startswith("pulljobs")} <= {"pulljobs.I001"}
    assert settings.DATABASES["jobs"]["USER"] == "shop_app"
    assert all(options["DISABLE_SERVER_SIDE_CURSORS"] for options in settings.DATABASES.values())


def test_it_names_every_app_whose_tables_belong_there() -> None:
    guide = "".join((BASE_DIR / name).read_text("utf-8") for name in GUIDES)
    assert [label for label in sorted(app_labels) if f"`{label}`" not in guide] == []


@pytest.mark.django_db(transaction=True)
def test_a_message_is_published_after_the_commit_and_once(code: dict[str, ModuleType]) -> None:
    Channel.objects.create(name="teams")
    code["shop.ordering"].found("red")
    team = Group.objects.get(name="red")
    code["shop.ordering"].announce(team.pk)
    assert Message.objects.get().client_message_id == f"team-{team.pk}"
    with transaction.atomic():
        code["shop.ordering"].found("blue")
        transaction.set_rollback(True)
    assert Message.objects.count() == 1


@pytest.mark.owner
@pytest.mark.django_db(transaction=True)
def test_the_role_is_made_and_granted() -> None:
    role = f"shop_app_{uuid4().hex}"  # roles are unique on a server
    for text in texts(GUIDES[0], "sql"):
        query(text.replace("shop_app", role))
    try:
        grant(role, Profile.APP)
    finally:
        query(f"DROP OWNED BY {role}; DROP ROLE {role}")
