import pytest

from tests.api.caller import Caller, Subscription, subscription


@pytest.fixture
def census(transactional_db: None) -> Subscription:
    return subscription("orders", "census")


@pytest.fixture
def caller(census: Subscription) -> Caller:
    return Caller(census)
