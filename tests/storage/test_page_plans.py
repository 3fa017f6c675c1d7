"""Lists and counts that the ORM asks for read a page, not a table, however old the statistics."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from pulljobs.models import Consumer
from pulljobs.storage import dead, published, scheduled
from pulljobs.storage.pages import Cut
from tests.days import drop_days
from tests.factories import USING, ConsumerFactory
from tests.sessions import FORGET, query

pytestmark = [pytest.mark.django_db, pytest.mark.owner]

ROWS = 30_000
FILL = f"""
INSERT INTO pulljobs_message
    (id, channel_id, published_at, priority, content_type, headers, payload, client_message_id)
SELECT n, n %% 3, now(), 0, '', '{{}}', '', n::text FROM generate_series(1, {ROWS}) AS n;
INSERT INTO pulljobs_publication (channel_id, client_message_id, message_id, published_at)
SELECT n %% 3, n::text, n, now() FROM generate_series(1, {ROWS}) AS n;
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, available_at, retry_count, deliveries, priority, state, reason)
SELECT n, %(consumer)s, n, CASE WHEN n %% 100 > 0 THEN now() END, 0, 0, 0,
    CASE WHEN n %% 100 > 0 THEN 'QUEUED' ELSE 'DEAD' END,
    CASE WHEN n %% 100 = 0 THEN 'killed' END
FROM generate_series(1, {ROWS}) AS n;
INSERT INTO pulljobs_archived_job
    (job_id, message_id, consumer_id, created_at, settled_at, retry_count, deliveries, state)
SELECT n, n, %(consumer)s, now(), now(), 0, 1, 'DELIVERED' FROM generate_series(1, {ROWS}) AS n
"""
ASKED: dict[str, Callable[[Consumer], Any]] = {
    "a page of messages": lambda _: published.page(USING, 1, Cut()),
    "its next": lambda _: published.page(USING, 1, Cut(below=20_000)),
    "its previous": lambda _: published.page(USING, 1, Cut(above=20_000)),
    "how many messages": lambda _: published.count(USING, 1),
    "a message": lambda _: published.find(USING, 1, "10000"),
    "its jobs": lambda _: published.read_jobs(USING, 10_000),
    "a job": lambda _: published.read_job(USING, 10_000),
    "heads": lambda _: published.heads(USING, list(range(1, 2_500, 100))),
    "a page of dead jobs": lambda each: published.dead(USING, each, Cut()),
    "its next one": lambda each: published.dead(USING, each, Cut(below=20_000)),
    "a batch of dead jobs": lambda each: dead.ids(USING, each.pk, after=5_000, limit=100),
    "a batch to delete": lambda each: dead.delete(USING, each.pk, 1, None, limit=100),
    "scheduled messages": lambda _: scheduled.page(USING, 1, Cut()),
    "what is due": lambda _: scheduled.due(USING, 100),
}
SMALL = {
    "pulljobs_consumer",
    "pulljobs_channel",
    "pulljobs_limit_group",
    "pulljobs_producer",
    "pulljobs_scheduled_message",
}


@pytest.fixture(params=["analyzed", "never analyzed"])
def consumer(request: pytest.FixtureRequest) -> Consumer:
    made = ConsumerFactory.create()
    drop_days()  # those that are empty are scanned, and no harm done
    with connection.cursor() as cursor:
        cursor.execute(FORGET.replace("%", "%%"), [])
        cursor.execute(FILL, {"consumer": made.pk})
        if request.param == "analyzed":
            cursor.execute("ANALYZE pulljobs_job, pulljobs_message, pulljobs_archived_job")
    return made


def test_no_table_is_scanned(consumer: Consumer) -> None:
    scans = []
    for name, ask in ASKED.items():
        with CaptureQueriesContext(connection) as captured:
            ask(consumer)
        for asked in captured.captured_queries:
            if asked["sql"].startswith("SELECT"):
                scans += [(name, table) for table in _scanned(asked["sql"])]
    assert scans == []


def _scanned(statement: str) -> list[str]:
    [(plan,)] = query(f"EXPLAIN (FORMAT JSON) {statement.replace('%', '%%')}")
    return [
        node["Relation Name"]
        for node in _nodes(plan[0]["Plan"])
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] not in SMALL
    ]


def _nodes(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(deep for below in node.get("Plans", []) for deep in _nodes(below))]
