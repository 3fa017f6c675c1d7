from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from pulljobs.models import CountProgress
from tests.admin.conftest import browser_of


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise the time limit for reading each table of a page, for busy machines."""
    monkeypatch.setattr("pulljobs.admin.dashboard.contents.PATIENCE", timedelta(minutes=1))


@pytest.fixture(autouse=True)
def _nothing_is_counted(db: None) -> None:
    """Delete the progress of counts, which a server process of an earlier test may have begun."""
    CountProgress.objects.all().delete()


@pytest.fixture
def operator(db: None) -> Client:
    return browser_of(User.objects.create_superuser("olga"))
