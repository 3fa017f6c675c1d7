"""Pages of the admin show rollups and change nothing."""

import re
import uuid
from datetime import UTC, datetime

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from pulljobs.lake.models import ErrorFingerprint, HotKey, NodeCost, Rollup, RollupRun
from pulljobs.models import Consumer, Node
from tests.admin.pages import listing, page, read_page, rows

pytestmark = pytest.mark.django_db
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def rollup(consumer: Consumer, **given: object) -> Rollup:
    fields = {"period": "hour", "starts_at": NOON, "channel_id": consumer.channel_id}
    return Rollup.objects.create(consumer_id=consumer.pk, **(fields | given))


def test_lists_name_consumers_also_those_that_are_gone(reader: Client, consumer: Consumer) -> None:
    rollup(consumer, delivered=7200, wait_p50=0.5, wait_p95=1.0, wait_p99=2.0)
    rollup(consumer, period="day", starts_at=NOON.replace(hour=0), delivered=9)
    Rollup.objects.create(period="hour", starts_at=NOON, consumer_id=0, dead=3)
    with CaptureQueriesContext(
        connection,
    ) as taken:
        shown = rows(read_page(reader, listing("lake_rollup"), period__exact="hour"))
    assert len(shown) == 2
    assert any("files / census 0 7200" in row and "0.500, 1.000, 2.000" in row for row in shown)
    assert any("deleted / deleted" in row for row in shown)
    assert not any("sketch" in query["sql"] for query in taken)
    of_consumer = read_page(reader, listing("lake_rollup"), consumer=consumer.pk)
    assert len(rows(of_consumer)) == 2
    for unknown in "x", "-1", "9" * 20, "9" * 5_000:
        assert rows(read_page(reader, listing("lake_rollup"), consumer=unknown)) == []


def test_the_page_of_one_shows_its_parts(reader: Client, consumer: Consumer) -> None:
    """The page of a rollup shows its hot keys, nodes, errors and reasons, read-only."""
    hour = rollup(consumer, delivered=7200, dead_by_reason={"rejected": 2}, slowest_seconds=1.5)
    HotKey.objects.create(rollup=hour, rank=1, key="the hot one", jobs=9)
    NodeCost.objects.create(rollup=hour, node_id=uuid.UUID(int=1), jobs=5, dead=2, run_seconds=1.25)
    ErrorFingerprint.objects.create(
        rollup=hour, fingerprint="f", reason="rejected", jobs=2, sample="No.\ntrace", sample_job=1
    )
    text = read_page(reader, page("lake_rollup", hour.pk))
    for part in ("the hot one", "00000000-0000-0000-0000-000000000001", "No.", "2.000", "rejected"):
        assert part in text
    assert 'type="submit" value="Save"' not in text


def test_a_page_reads_no_more_for_more_nodes_and_shows_those_that_ran_longest(
    reader: Client, consumer: Consumer
) -> None:
    hour = rollup(consumer)
    counts = []
    read_page(reader, page("lake_rollup", hour.pk))
    for first, last in ((0, 5), (5, 120)):
        numbers = range(first, last)
        Node.objects.bulk_create(
            Node(id=uuid.UUID(int=n), name=f"node-{n:03}", started_at=NOON, heartbeat_at=NOON)
            for n in numbers
        )
        NodeCost.objects.bulk_create(
            NodeCost(rollup=hour, node_id=uuid.UUID(int=n), jobs=1, dead=0, run_seconds=n)
            for n in numbers
        )
        with CaptureQueriesContext(
            connection,
        ) as taken:
            text = read_page(reader, page("lake_rollup", hour.pk))
        counts.append(len(taken))
    assert counts[0] == counts[1]
    assert re.findall(r"<p>(node-\d+)</p>", text) == [f"node-{n:03}" for n in range(119, 19, -1)]


def test_runs_are_listed(reader: Client) -> None:
    """The list of rollup runs shows their time, settlements and hours."""
    RollupRun.objects.create(
        location="lake", archive_run=1, messages_run=1, known_until=NOON, started_at=NOON,
        finished_at=NOON, settlements=12, hours=3,
    )  # fmt: skip
    [row] = rows(read_page(reader, listing("lake_rolluprun")))
    assert "2026-11-21 12:00:00 12 3" in row
