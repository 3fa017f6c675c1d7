"""Figures of the last hour are read from the archive.

Counts of a minute with few settlements are exact, others are estimates. The rollups of the lake are
tested in tests/lake/without_spark.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from pulljobs import ids
from pulljobs.admin.dashboard import history, ranges
from pulljobs.engine import outcomes
from pulljobs.engine.sql import statement
from pulljobs.models import Consumer
from pulljobs.states import State
from pulljobs.storage import jobs, nodes, recent
from tests.dashboard.test_page import read_dashboard, visible_text
from tests.days import no_days
from tests.factories import USING, ConsumerFactory, JobFactory, claimed
from tests.sessions import FORGET, query
from tests.storage.test_page_plans import SMALL, _nodes, _scanned

pytestmark = pytest.mark.django_db

MINUTE = timedelta(minutes=1)
BOUNDED = {
    "pulljobs_node",
    "pulljobs_pull_waiter",
    "pulljobs_message_default",  # not more than 10,000 are counted, where there should be none
    "pulljobs_archived_job_default",
}
"""Tables that do not grow with jobs, or whose scan ends early."""
ARCHIVED = """
INSERT INTO pulljobs_archived_job (id, job_id, message_id, consumer_id, created_at, claimed_at,
    settled_at, retry_count, deliveries, state, reason)
SELECT %s + (n * %s::bigint << 22), n, n, %s, at - wait - run, at - run, at, dead, 1 + dead,
    CASE dead WHEN 1 THEN 'DEAD' ELSE 'DELIVERED' END, CASE dead WHEN 1 THEN 'rejected' END
FROM (
    SELECT n, %s::timestamptz + n * %s * interval '1 ms' AS at, interval '1 s' AS wait,
        n * interval '1 ms' AS run, (n %% 10 = 0)::int AS dead
    FROM generate_series(0, %s) AS n
) AS t
"""


@pytest.fixture
def now(db: None) -> datetime:
    return nodes.clock(USING)


@pytest.fixture
def consumer(db: None) -> Consumer:
    return ConsumerFactory.create()


def settle(consumer: Consumer, start: datetime, count: int, *, every_ms: int) -> None:
    """Archive jobs, every tenth of them dead after a retry.

    Each waited a second and ran 0, 1, 2 ... ms.
    """
    first = ids.first_of(start)
    query(ARCHIVED, [first, every_ms, consumer.pk, start, every_ms, count - 1])


def last_hour(now: datetime, consumer_id: int | None = None) -> history.History:
    chosen = ranges.DEFAULT
    return history.read_archive(chosen.slices(now), chosen.step, consumer_id)


def test_a_quiet_minute_is_exact(consumer: Consumer, now: datetime) -> None:
    start = ranges.DEFAULT.slices(now)[-3].start
    settle(consumer, start, 100, every_ms=100)
    hour = last_hour(now)
    [point] = [point for point in hour.points if point.settled]
    assert (point.start, point.delivered, point.dead, point.retries) == (start, 90, 10, 10)
    assert not point.is_estimate
    assert point.waits == pytest.approx((1.0, 1.0, 1.0))
    assert hour.consumers[consumer.pk].delivered == 90
    assert hour.trends[consumer.pk][-3] == 100


def test_a_busy_minute_is_a_close_estimate(consumer: Consumer, now: datetime) -> None:
    start = ranges.DEFAULT.slices(now)[-3].start
    settle(consumer, start, 5_000, every_ms=12)
    [point] = [point for point in last_hour(now).points if point.settled]
    assert point.is_estimate
    assert point.settled == pytest.approx(5_000, rel=0.02)
    assert point.dead == pytest.approx(500, rel=0.05)


@pytest.mark.parametrize("count", [40, 5_000])
def test_the_page_says_how_many_settlements_its_percentiles_cover(
    operator: Client, consumer: Consumer, now: datetime, count: int
) -> None:
    settle(consumer, ranges.DEFAULT.slices(now)[-3].start, count, every_ms=12)
    for chosen in ({}, {"consumer": consumer.pk}):
        text = visible_text(read_dashboard(operator, **chosen))
        assert ("every settlement of the hour is counted" in text) == (count == 40)
        assert "the first 30 settlements of all consumers in every 10 seconds." in text


def test_a_consumer_beyond_the_timed_settlements_is_counted_without_times(
    consumer: Consumer, now: datetime
) -> None:
    start = ranges.DEFAULT.slices(now)[-3].start
    settle(consumer, start, recent.TIMED + 10, every_ms=10)
    rare = ConsumerFactory.create()
    settle(rare, start + timedelta(seconds=1), 20, every_ms=10)
    hour = last_hour(now)
    assert (hour.consumers[rare.pk].delivered, hour.consumers[rare.pk].waits) == (18, None)
    [point] = [point for point in last_hour(now, rare.pk).points if point.settled]
    assert (point.settled, point.waits) == (20, None)


def test_a_burst_is_not_extrapolated(consumer: Consumer, now: datetime) -> None:
    start = ranges.DEFAULT.slices(now)[-3].start
    settle(consumer, start, 3 * recent.CAP, every_ms=1)
    [point] = [point for point in last_hour(now).points if point.settled]
    assert point.settled == pytest.approx(3 * recent.CAP, rel=0.05)


def test_the_caps_limit_the_rows_that_are_read_of_a_slice(
    consumer: Consumer, now: datetime
) -> None:
    slice = ranges.DEFAULT.slices(now)[-3]
    settle(consumer, slice.start, 20_000, every_ms=3)
    query("ANALYZE pulljobs_archived_job")
    most = recent.SPANS * (recent.CAP + recent.TIMED + 1)
    assert most / 2 < rows_read(recent.params([slice])) <= most


def rows_read(params: dict[str, Any]) -> float:
    """Return the number of rows that the statement reads from the archive."""
    text = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement('recent')}"
    with connection.cursor() as cursor:
        cursor.execute(text, params)
        [(plans,)] = cursor.fetchall()
    return sum(
        float(node["Actual Rows"] * node["Actual Loops"])
        for node in _nodes(plans[0]["Plan"])
        if node.get("Relation Name", "").startswith("pulljobs_archived_job")
    )


def test_a_redriven_job_adds_no_wait(consumer: Consumer, now: datetime) -> None:
    """Its wait would include the time until an operator redrove it."""
    job = JobFactory.create(consumer=consumer, state=State.DEAD)
    jobs.redrive(USING, [job.id])
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer, 1)])
    query("UPDATE pulljobs_archived_job SET created_at = created_at - interval '1 day'")
    total = last_hour(now + MINUTE).total
    assert (total.delivered, total.dead) == (1, 1)
    assert total.waits
    assert total.waits[0] == total.waits[2] > 86_000
    query("UPDATE pulljobs_archived_job SET created_at = claimed_at WHERE state = 'DEAD'")
    assert last_hour(now + MINUTE).total.waits == (0.0, 0.0, 0.0)


def test_a_retried_or_revived_job_adds_no_wait(consumer: Consumer, now: datetime) -> None:
    JobFactory.create(consumer=consumer, state=State.DELIVERED)
    assert last_hour(now + MINUTE).total.waits is not None
    for again in ("deliveries = 2", "deliveries = 1, retry_count = 1"):
        query(f"UPDATE pulljobs_archived_job SET {again}")
        assert last_hour(now + MINUTE).total.waits is None


def test_a_killed_job_adds_no_run_time(consumer: Consumer, now: datetime) -> None:
    """The operator who killed it does not know when its handler ended."""
    job = JobFactory.create(consumer=consumer, state=State.INFLIGHT)
    jobs.kill(USING, [job.id], reason="killed")
    total = last_hour(now + MINUTE).total
    assert (total.dead, total.runs) == (1, None)


def test_the_charts_of_a_consumer_leave_out_all_others(consumer: Consumer, now: datetime) -> None:
    start = ranges.DEFAULT.slices(now)[-3].start
    settle(ConsumerFactory.create(), start, 50, every_ms=10)
    assert last_hour(now, consumer.pk).total.settled == 0
    assert last_hour(now).total.settled == 50


@pytest.fixture(params=["analyzed", "never analyzed"])
def crowded(request: pytest.FixtureRequest, consumer: Consumer, now: datetime) -> Iterator[None]:
    with no_days():
        _crowd(consumer, now, analyzed=request.param == "analyzed")
        yield


def _crowd(consumer: Consumer, now: datetime, *, analyzed: bool) -> None:
    query(FORGET.replace("%", "%%"))
    settle(consumer, now - timedelta(minutes=10), 20_000, every_ms=30)
    query(
        "INSERT INTO pulljobs_job (id, consumer_id, message_id, available_at, retry_count,"
        " deliveries, priority, state, reason)"
        " SELECT n, %s, n, CASE WHEN n %% 9 > 0 THEN now() END, 0, 0, 0,"
        " CASE WHEN n %% 9 > 0 THEN 'QUEUED' ELSE 'DEAD' END,"
        " CASE WHEN n %% 9 = 0 THEN 'killed' END FROM generate_series(1, 30000) AS n",
        [consumer.pk],
    )
    if analyzed:
        query("ANALYZE pulljobs_job, pulljobs_archived_job")


def test_no_query_of_the_page_scans_a_growing_table(operator: Client, crowded: None) -> None:
    """The statements in SQL files are tested in tests/storage/test_plans.py."""
    assert scans(operator, "hour") == []


def scans(operator: Client, chosen: str) -> list[tuple[str, str]]:
    """Return the queries of the page that scan a table that grows, each with that table."""
    with CaptureQueriesContext(connection) as captured:
        read_dashboard(operator, range=chosen)
    return [
        (executed["sql"], table)
        for executed in captured.captured_queries
        if executed["sql"].startswith("SELECT") and "FROM" in executed["sql"]
        for table in _scanned(executed["sql"])
        if table.startswith("pulljobs_") and table not in SMALL | BOUNDED
    ]


def test_an_unknown_range_is_the_last_hour() -> None:
    assert ranges.choose("century") is ranges.choose(None) is ranges.DEFAULT
