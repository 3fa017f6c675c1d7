from collections.abc import Iterator
from typing import Any

import pytest
from django.db import connections

from pulljobs.models import Producer
from tests.api.caller import subscription
from tests.api.leases.processes import Site, site
from tests.client.worlds import BrokerWorld, Live, Mocked, Side

SETTINGS = "tests.client.settings"
LIVE = pytest.param("live", marks=pytest.mark.django_db(transaction=True))


@pytest.fixture(scope="session")
def served(django_db_setup: None) -> Iterator[Site]:
    """Run the example project in a process of its own, on the database of the tests."""
    name = str(connections["default"].settings_dict["NAME"])
    with site({"SERVED_DATABASE": name, "DJANGO_SETTINGS_MODULE": SETTINGS}) as running:
        yield running


@pytest.fixture
def live(served: Site, transactional_db: None) -> Live:
    subscribe()
    return Live(served.base)


def subscribe(**fields: Any) -> None:
    subscription("orders", "census", **fields)
    producer = Producer(name="shop")
    producer.set_token("shop-token")
    producer.save()


@pytest.fixture(params=["mocked", LIVE])
def world(request: pytest.FixtureRequest) -> BrokerWorld:
    made: BrokerWorld = Mocked() if request.param == "mocked" else request.getfixturevalue("live")
    return made


@pytest.fixture(params=["sync", "async"])
def side(request: pytest.FixtureRequest, world: BrokerWorld) -> Iterator[Side]:
    made = Side(world, is_async=request.param == "async")
    yield made
    made.close()
