import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from pulljobs.models import Consumer
from tests.factories import ChannelFactory, ConsumerFactory


@pytest.fixture
def consumer(db: None) -> Consumer:
    return ConsumerFactory.create(name="census", channel=ChannelFactory.create(name="files"))


@pytest.fixture
def operator(db: None) -> Client:
    return browser_of(User.objects.create_superuser("olga"))


@pytest.fixture
def reader(db: None) -> Client:
    """Return a client of a user who may view everything and change nothing."""
    user = User.objects.create_user("rita", is_staff=True)
    views = Permission.objects.filter(
        content_type__app_label__startswith="pulljobs", codename__startswith="view"
    )
    user.user_permissions.set(views)
    return browser_of(user)


def browser_of(user: User) -> Client:
    """Return a client in which the user is logged in."""
    client = Client()
    client.force_login(user)
    return client
