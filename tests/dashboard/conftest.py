from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from pulljobs.models import CountProgress
from tests.admin.conftest import browser_of


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for the database, so that a busy machine does not leave parts out."""
    monkeypatch.setattr("pulljobs.admin.dashboard.contents.PATIENCE", timedelta(minutes=1))


@pytest.fixture(autouse=True)
def _nothing_is_counted(db: None) -> None:
    """Forget counts that a server process of tests before may have begun."""
    CountProgress.objects.all().delete()


@pytest.fixture
def operator(db: None) -> Client:
    return browser_of(User.objects.create_superuser("olga"))
