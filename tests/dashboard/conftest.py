from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.admin.conftest import browser_of


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait longer for the database, so that a busy machine does not leave parts out."""
    monkeypatch.setattr("pulljobs.admin.dashboard.contents.PATIENCE", timedelta(minutes=1))


@pytest.fixture
def operator(db: None) -> Client:
    return browser_of(User.objects.create_superuser("olga"))
