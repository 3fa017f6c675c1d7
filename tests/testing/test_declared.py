"""Channels that handlers declare exist after `migrate`, and so in the databases of tests."""

import logging
import subprocess
import sys
from collections.abc import Iterator

import pytest
from django.apps import apps
from django.core.management import call_command
from django.db import connections
from django.db.models.signals import post_migrate
from django.test import override_settings

from pulljobs import handlers
from pulljobs.apps import create_declared
from pulljobs.models import Channel, Consumer, Job
from pulljobs.publishing import publish
from tests.factories import USING
from tests.handling import registry_of_its_own


@pytest.fixture
def _after_migrations(transactional_db: None) -> Iterator[None]:
    """Let `migrate` create declared channels, as in a project, and declare one."""
    sender = apps.get_app_config("pulljobs")
    post_migrate.connect(create_declared, sender=sender, dispatch_uid="pulljobs.declared")
    with registry_of_its_own():
        handlers.handler(channel="declared", consumer="first", max_retries=7)(print)
        yield
    post_migrate.disconnect(dispatch_uid="pulljobs.declared", sender=sender)


@pytest.mark.usefixtures("_after_migrations")
@pytest.mark.owner
def test_a_publish_finds_the_declared_channel_after_migrate() -> None:
    call_command("migrate", database=USING, verbosity=0)
    publish("declared", {})
    assert Job.objects.get().consumer.max_retries == 7
    Consumer.objects.update(max_retries=3)
    call_command("migrate", database=USING, verbosity=0)
    assert Consumer.objects.get().max_retries == 3, "rows that exist do not change"


@pytest.mark.usefixtures("_after_migrations")
def test_other_databases_get_no_channels() -> None:
    create_declared(using="another")
    assert not Channel.objects.exists()


@pytest.mark.usefixtures("_after_migrations")
def test_missing_tables_are_a_warning_and_no_error(caplog: pytest.LogCaptureFixture) -> None:
    """Without tables, as before the migrations, a warning is logged and no channel is created."""
    with connections[USING].cursor() as cursor:
        cursor.execute("SET search_path TO pg_catalog")
    create_declared(using=USING)
    connections[USING].close()
    assert "No channels and consumers were created" in caplog.text


@pytest.mark.usefixtures("_after_migrations")
def test_handlers_that_cannot_be_imported_do_not_fail_the_migration(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ImportError("no module named orders.mails")

    monkeypatch.setattr(handlers, "autodiscover", fail)
    with caplog.at_level(logging.WARNING):
        create_declared(using=USING)
    assert "orders.mails" in caplog.text


@override_settings(PULLJOBS={"NO_SUCH": 1})
def test_wrong_settings_do_not_fail_the_migration(caplog: pytest.LogCaptureFixture) -> None:
    create_declared(using=USING)
    assert "NO_SUCH" in caplog.text


WITHOUT = """
import sys
sys.modules[{module!r}] = None
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
settings.configure(INSTALLED_APPS=["django.contrib.contenttypes", "django.contrib.auth"])
import django
django.setup()
try:
    import {imported}
except ImproperlyConfigured as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("module", "imported", "command"),
    [
        ("psycopg", "pulljobs.apps", "pip install 'psycopg[binary]>=3.2'"),
        ("rest_framework", "pulljobs.api.urls", "pip install 'pulljobs[api]'"),
    ],
)
def test_a_missing_package_is_named_with_its_command(
    module: str, imported: str, command: str
) -> None:
    script = WITHOUT.format(module=module, imported=imported)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert command in done.stdout, done.stderr
