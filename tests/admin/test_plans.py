"""No statement of a page reads more rows than a window has, however large the table is."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from pulljobs.admin.operations import BY_SLUG
from pulljobs.models import ArchivedJob, Consumer, Job, Producer
from tests.admin.conftest import browser_of
from tests.admin.pages import listing, page
from tests.factories import ChannelFactory, ConsumerFactory
from tests.sessions import FORGET, query

pytestmark = [pytest.mark.django_db, pytest.mark.owner]

ROWS = 30_000
MOST = 20_001
"""Highest number of rows that a preview reads: those of its window and one more."""
BIG = {"pulljobs_job", "pulljobs_archived_job_default", "pulljobs_message_default"}
FILL = """
INSERT INTO pulljobs_message
    (id, channel_id, published_at, priority, content_type, headers, payload, key)
SELECT n, %(channel)s, now(), 0, '', '{}', '', 'k' || n %% 100
FROM generate_series(1, %(rows)s) AS n;
INSERT INTO pulljobs_job (
    id, consumer_id, message_id, available_at, retry_count, deliveries, priority, state, reason, key
)
SELECT n, (%(consumers)s::bigint[])[1 + n %% 2], n, CASE WHEN n %% 3 > 0 THEN now() END,
    0, 0, n %% 3,
    CASE WHEN n %% 3 > 0 THEN 'QUEUED' ELSE 'DEAD' END,
    CASE WHEN n %% 3 = 0 THEN 'killed' END,
    'k' || n %% 100
FROM generate_series(1, %(rows)s) AS n;
INSERT INTO pulljobs_archived_job
    (id, job_id, message_id, consumer_id, created_at, settled_at, retry_count, deliveries, state)
SELECT n, n, n, (%(consumers)s::bigint[])[1 + n %% 2], now(), now(), 0, 1, 'DELIVERED'
FROM generate_series(1, %(rows)s) AS n
"""


@pytest.fixture
def consumer() -> Consumer:
    """Fill and analyze large tables, whose rows two consumers share. Return the first of them."""
    channel = ChannelFactory.create()
    made = [ConsumerFactory.create(channel=channel, exclusive_keys=keys) for keys in (True, False)]
    query(FORGET.replace("%", "%%"))
    filled = {"rows": ROWS, "channel": channel.pk, "consumers": [consumer.pk for consumer in made]}
    query(FILL, filled)  # type: ignore[arg-type]  # parameters by name
    query("ANALYZE pulljobs_job, pulljobs_message, pulljobs_archived_job")
    return made[0]


def test_no_page_reads_more_rows_than_a_window(consumer: Consumer) -> None:
    browser = browser_of(User.objects.create_superuser("olga"))
    too_many = [
        (url, table, rows)
        for url in pages(consumer)
        for sql in statements_of(browser, url)
        for table, rows in scans(sql)
        if rows > MOST
    ]
    assert too_many == []


def pages(consumer: Consumer) -> Iterator[str]:
    filters = [
        "state=QUEUED",
        "state=INFLIGHT",
        "state=DEAD",
        "state=DELIVERED",
        "reason=purged",
        "key=k7",
        "key=none",
        "age=over-1d",
        "q=17",
        "q=nowhere",
        "q=k7&state=DEAD",
        f"q=nowhere&consumer={consumer.pk}",
        "key=k7&state=DELIVERED",
        f"consumer={consumer.pk}&id__lt=9000",
        f"channel={consumer.channel_id}",
    ]
    for model in ("job", "archivedjob"):
        yield from (f"{listing(model)}?{chosen}" for chosen in ["", *filters])
    for model in ("channel", "producer", "consumer", "node", "auditentry"):
        yield listing(model)
    for slug in BY_SLUG:
        for chosen in ("", "reason=purged", "key=none", f"consumer={consumer.pk}"):
            yield f"{reverse('admin:pulljobs_job_all', args=[slug])}?{chosen}"
    yield page("consumer", consumer.pk)
    yield page("channel", consumer.channel_id)
    yield page("producer", Producer.objects.create(name="scanner").pk)
    for job in (Job.objects.filter(state=state).latest("pk") for state in ("QUEUED", "DEAD")):
        yield page("job", job.pk)
    yield page("archivedjob", ArchivedJob.objects.latest("pk").pk)


def statements_of(browser: Client, url: str) -> list[str]:
    """Return the statements that a page executes and that select from tables of pulljobs."""
    with CaptureQueriesContext(connection) as captured:
        assert browser.get(url).status_code == 200, url
    return [
        executed["sql"]
        for executed in captured
        if "pulljobs_" in executed["sql"] and "SELECT" in executed["sql"]
    ]


def scans(sql: str) -> Iterator[tuple[str, int]]:
    """Yield each scan of a big table by a query of Django: the table and the number of rows read.

    Statements of SQL files begin with a comment and are left out: tests/storage has their plans.
    """
    if not sql.startswith("SELECT"):
        return
    [(plans,)] = query(f"EXPLAIN (ANALYZE, FORMAT JSON) {sql.replace('%', '%%')}")
    for node in nodes(plans[0]["Plan"]):
        if node.get("Relation Name") in BIG:
            rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
            yield node["Relation Name"], int(rows * node["Actual Loops"])


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a node of a plan and all nodes below it."""
    yield node
    for below in node.get("Plans", []):
        yield from nodes(below)
