import pytest

from tests.api.caller import Caller, Subscription, subscription
from tests.api.management import ALL, Manager, user


@pytest.fixture
def census(transactional_db: None) -> Subscription:
    return subscription("orders", "census")


@pytest.fixture
def manager(db: None) -> Manager:
    """HTTP client of a user with all permissions."""
    user("boss", *ALL)
    return Manager("boss")


@pytest.fixture
def caller(census: Subscription) -> Caller:
    return Caller(census)
