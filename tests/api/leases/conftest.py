from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest
from pytest_django import Settings

from tests.api.caller import Subscription
from tests.api.leases.serving import Puller, close_waiters, served
from tests.sessions import PATIENCE_SECONDS


@pytest.fixture(scope="session")
def client() -> Iterator[httpx.Client]:
    """HTTP client that all tests share, because a new one reads certificates, which takes long."""
    with httpx.Client(timeout=2 * PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture(scope="session")
def base() -> Iterator[str]:
    """Base URL of a server that runs for the whole session, in a thread."""
    with served() as url:
        yield url


@pytest.fixture
def emptied(transactional_db: None, settings: Settings) -> Iterator[None]:
    """End the pulls that wait in this process when the test ends.

    In the test, waiters poll once a minute, so that only a notification can wake a pull in time.
    """
    settings.PULLJOBS = {"MAX_FETCH_INTERVAL": timedelta(minutes=1)}
    yield
    close_waiters()


@pytest.fixture
def puller(client: httpx.Client, base: str, census: Subscription, emptied: None) -> Puller:
    return Puller(client, base, census)
