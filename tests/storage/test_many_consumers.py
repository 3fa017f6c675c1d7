"""No hot statement reads consumers that have nothing to do with its jobs: thousands may be idle."""

from collections.abc import Iterator

import pytest
from pytest_django.plugin import DjangoDbBlocker

from pulljobs.models import Channel, Consumer
from pulljobs.storage.sessions import PLAN_FOR_QUEUES
from tests.factories import USING
from tests.sessions import Session, session
from tests.storage.planning import PARAMS, plan
from tests.storage.test_plans_of_empty_tables import OF_WORKERS

pytestmark = [pytest.mark.django_db, pytest.mark.owner]

MANY = 2_000
ANALYZE = "ANALYZE pulljobs_consumer, pulljobs_channel"
COMMON = {"channel": "many-1", "producer_id": None}
SINGLE = {"payload": b"", "content_type": "", "headers": "{}", "priority": 0}
SEVERAL = {"payloads": [b""], "content_types": [""], "headers": ["{}"], "priorities": [0]}
PUBLISHED = {
    "publish_plain": COMMON | SINGLE,
    "publish_batch": COMMON | SEVERAL,
}


def add_consumers(first: int, last: int) -> None:
    channels = [Channel(name=f"many-{number}") for number in range(first, last)]
    Channel.objects.using(USING).bulk_create(channels)
    consumers = [Consumer(channel=channel, name="idle") for channel in channels]
    Consumer.objects.using(USING).bulk_create(consumers)


@pytest.fixture(scope="module", params=["analyzed", "analyzed when small"])
def planner(
    request: pytest.FixtureRequest, django_db_setup: None, django_db_blocker: DjangoDbBlocker
) -> Iterator[Session]:
    """Open a worker's connection to a server with many consumers."""
    with django_db_blocker.unblock(), session() as asking:
        asking.autocommit = True
        asking.execute("ALTER TABLE pulljobs_consumer SET (autovacuum_enabled = off)")
        try:
            add_consumers(0, 20)
            asking.execute(ANALYZE.encode())
            add_consumers(20, MANY)
            if request.param == "analyzed":
                asking.execute(ANALYZE.encode())
            asking.execute(PLAN_FOR_QUEUES)
            yield asking
        finally:
            asking.execute("DELETE FROM pulljobs_consumer WHERE name = 'idle'")
            asking.execute("DELETE FROM pulljobs_channel WHERE name LIKE 'many-%'")
            asking.execute("ALTER TABLE pulljobs_consumer RESET (autovacuum_enabled)")
            asking.execute(ANALYZE.encode())


@pytest.mark.parametrize("name", [*OF_WORKERS, "discover", "claim_turns", *PUBLISHED])
def test_consumers_are_found_by_their_id_or_their_channel(planner: Session, name: str) -> None:
    conditions = [
        node.get("Index Cond", node["Node Type"])
        for node in plan(planner, name, PARAMS | PUBLISHED)
        if node.get("Relation Name") == "pulljobs_consumer"
    ]
    assert [each for each in conditions if not each.startswith(("(id = ", "(channel_id = "))] == []
