from collections.abc import Iterator

import httpx
import pytest

from pulljobs.api.lingering import room
from tests.api.caller import Subscription
from tests.api.pull.serving import Puller, served
from tests.sessions import PATIENCE_SECONDS


@pytest.fixture(scope="session")
def client() -> Iterator[httpx.Client]:
    """To be shared: the certificates that each reads take longer than a test."""
    with httpx.Client(timeout=2 * PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture(scope="session")
def base() -> Iterator[str]:
    """Of a server of the whole session; what waits in it is of one test."""
    with served() as url:
        yield url


@pytest.fixture
def emptied(transactional_db: None) -> Iterator[None]:
    yield
    room.close()


@pytest.fixture
def puller(client: httpx.Client, base: str, census: Subscription, emptied: None) -> Puller:
    return Puller(client, base, census)
