"""A claim reads in proportion to the jobs that it takes, not to the queue behind them."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from pulljobs.engine.low_water_marks import Entry, LowWaterMarks
from pulljobs.engine.sql import statement
from pulljobs.models import Consumer
from pulljobs.storage.sessions import PLAN_FOR_QUEUES
from tests.factories import ConsumerFactory
from tests.sessions import FORGET, Session, session
from tests.storage.planning import GUARDED, TERMS

pytestmark = pytest.mark.django_db(transaction=True)

WAITING = 60_000
WANTED = 20
BLOCKS = 200
"""Blocks that a claim may read: far more than it needs, far fewer than the claim index has."""
AGES_AGO = datetime(2020, 1, 1, tzinfo=UTC)
QUEUE = """
INSERT INTO pulljobs_job
    (consumer_id, message_id, available_at, retry_count, deliveries, priority, state)
SELECT %s, n, clock_timestamp(), 0, 0, 0, 'QUEUED' FROM generate_series(1, %s) AS n
"""


@pytest.mark.parametrize(
    "entry",
    [
        LowWaterMarks().entry_above(),
        Entry([0], [AGES_AGO], [0], [32_768, 0], [0, -32_769], None),
        Entry([0], [AGES_AGO], [0], [32_768, 0], [0, -32_769], AGES_AGO + timedelta(seconds=1)),
    ],
    ids=["from the head", "from a low-water mark", "below the marks"],
)
def test_a_claim_does_not_read_the_queue_behind_it(entry: Entry) -> None:
    consumer = ConsumerFactory.create()
    with session() as asking:
        asking.execute(FORGET)
        asking.execute(QUEUE, [consumer.pk, WAITING])
        asking.execute(PLAN_FOR_QUEUES)
        assert blocks_read(asking, consumer, entry) < BLOCKS


def blocks_read(asking: Session, consumer: Consumer, entry: Entry) -> int:
    params: dict[str, Any] = {
        "consumer_id": consumer.pk,
        "wanted": WANTED,
        **TERMS,
        **GUARDED,
        **entry._asdict(),
    }
    explain = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) "
    with psycopg.ClientCursor(asking) as cursor:
        row = cursor.execute(explain + statement("claim"), params).fetchone()
    assert row
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return int(plan[0]["Plan"]["Shared Hit Blocks"]) + int(plan[0]["Plan"]["Shared Read Blocks"])
