import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.admin.conftest import browser_of


@pytest.fixture
def operator(db: None) -> Client:
    return browser_of(User.objects.create_superuser("olga"))
