"""The dashboard counts every settlement in every range, be it in the stored counts or newer.

The rollups of the lake are tested in tests/lake/without_spark.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from pulljobs import ids
from pulljobs.admin.dashboard import history, ranges, tiles
from pulljobs.engine import outcomes
from pulljobs.engine.sql import statement
from pulljobs.models import Consumer
from pulljobs.states import State
from pulljobs.storage import counting, jobs, nodes, recent, settlement_history
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
    "pulljobs_count_progress",
    "pulljobs_message_default",  # not more than 10,000 are counted, where there should be none
    "pulljobs_archived_job_default",
    "pulljobs_schedule",  # tests/schedules/test_admin.py fills them
    "pulljobs_slot",
}
"""Tables that do not grow with jobs, or whose scan ends early."""
ARCHIVED = """
INSERT INTO pulljobs_archived_job (id, job_id, message_id, consumer_id, created_at, claimed_at,
    started_at, settled_at, run_seconds, retry_count, deliveries, state, reason)
SELECT %s + (n * %s::bigint << 22), n, n, %s, at - wait - run, at - run, at - run, at,
    date_part('epoch', run), dead, 1 + dead,
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
    """Insert settlements from `start` on, every tenth of them dead after a retry.

    Each job waited for a second and ran 0, 1, 2 ... ms.
    """
    first = ids.first_of(start)
    query(ARCHIVED, [first, every_ms, consumer.pk, start, every_ms, count - 1])


def read_range(name: str, now: datetime, consumer_id: int | None = None) -> history.History:
    chosen = ranges.choose(name)
    return chosen.source.read_history(chosen, now, consumer_id, list(all_consumers()))


def all_consumers() -> list[int]:
    return list(Consumer.objects.values_list("pk", flat=True))


def last_hour(now: datetime, consumer_id: int | None = None) -> history.History:
    return read_range("hour", now, consumer_id)


def estimated_hour(now: datetime) -> history.History:
    """Return the history of the default range, read from the archive as `pulljobs top` does."""
    chosen = ranges.DEFAULT
    return history.read_archive(chosen.slices(now), chosen.step)


@pytest.mark.parametrize("count", [100, 5_000])
def test_every_settlement_of_a_minute_is_counted(
    consumer: Consumer, now: datetime, count: int
) -> None:
    start = ranges.DEFAULT.slices(now)[-3].start
    settle(consumer, start, count, every_ms=10)
    hour = last_hour(now)
    [point] = [point for point in hour.points if point.settled]
    dead = count // 10
    assert (point.start, point.delivered, point.dead) == (start, count - dead, dead)
    assert point.retries == dead
    assert point.waits == pytest.approx((1.0, 1.0, 1.0), rel=0.015)
    last = (count - 1) / 1000
    assert point.runs == pytest.approx((0.5 * last, 0.95 * last, 0.99 * last), rel=0.03)
    assert hour.consumers[consumer.pk].delivered == count - dead
    assert hour.trends[consumer.pk][-3] == count


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["hour", "day", "week", "month"])
def test_every_range_has_every_settlement_once(
    operator: Client, consumer: Consumer, now: datetime, name: str
) -> None:
    """Stored counts plus newer settlements equal the archive, for one consumer and for all."""
    other = ConsumerFactory.create()
    week = ranges.choose("week").slices(now)[0].start
    settle(consumer, week + timedelta(days=1, minutes=1), 30, every_ms=1)
    settle(consumer, now - timedelta(hours=25), 1_000, every_ms=89_000)
    settle(other, now - timedelta(minutes=59, milliseconds=1), 500, every_ms=7_000)
    counting.count_settlements(USING, is_patient=True)
    now = nodes.clock(USING)  # no transaction settles jobs long before the count that missed it
    settle(consumer, now - timedelta(seconds=9), 50, every_ms=100)
    settle(other, now - timedelta(seconds=8, milliseconds=1), 70, every_ms=100)
    start = ranges.choose(name).slices(now)[0].start
    for consumer_id in (None, consumer.pk, other.pk):
        read = read_range(name, now, consumer_id)
        assert (read.total.delivered, read.total.dead) == by_archive(start, consumer_id)
        assert sum(point.settled for point in read.points) == read.total.settled
    for each in (consumer.pk, other.pk):
        tally = read.consumers[each]
        assert (tally.delivered, tally.dead) == by_archive(start, each)
        assert sum(read.trends[each]) == tally.settled
    delivered, dead = by_archive(start)
    page = visible_text(read_dashboard(operator, range=name))
    assert f"{dead} of {delivered + dead:,} settled in" in page


@pytest.mark.parametrize("hour", [0, 1, 12, 23])
def test_hours_and_whole_days_cover_a_week_without_gap_or_overlap(hour: int) -> None:
    """A week from any hour on is read as hours until a midnight, and as days from there."""
    start = datetime(2026, 5, 4, hour, tzinfo=UTC)
    end = start + timedelta(days=7)
    hours, days = history._cover(start, end, history.HOUR)
    assert (hours.since, days.since, days.until) == (start, hours.until, end)
    assert (days.since - history.EPOCH) % history.DAY == timedelta(0)


def by_archive(start: datetime, consumer_id: int | None = None) -> tuple[int, int]:
    [row] = query(
        "SELECT count(*) FILTER (WHERE state = 'DELIVERED'), count(*) FILTER (WHERE state = 'DEAD')"
        " FROM pulljobs_archived_job"
        " WHERE settled_at >= %s AND consumer_id = coalesce(%s, consumer_id)",
        [start, consumer_id],
    )
    return row[0], row[1]


def test_the_page_says_where_its_figures_begin_and_end(
    operator: Client, consumer: Consumer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(consumer, ranges.DEFAULT.slices(now)[-3].start, 40, every_ms=1_000)
    assert "Every settlement is counted." in visible_text(read_dashboard(operator))
    monkeypatch.setattr("pulljobs.storage.settlement_history.UNCOUNTED", 30)
    page = visible_text(read_dashboard(operator))
    assert "are not counted yet: start a worker, or run manage.py pulljobs maintain." in page
    assert "3 of 30 settled in 1 hour" in page


def test_times_say_how_exact_they_are(operator: Client, consumer: Consumer, now: datetime) -> None:
    settle(consumer, ranges.DEFAULT.slices(now)[-3].start, 40, every_ms=1_000)
    page = visible_text(read_dashboard(operator))
    assert page.count("Wait until claimed, ± 1.5 %") == 3
    assert page.count("Run time, ± 1.5 %") == 3
    assert "Wait and run times are estimates, at most 1.5 % off." in page


def test_the_pace_is_that_of_the_last_minute(consumer: Consumer, now: datetime) -> None:
    other = ConsumerFactory.create()
    settle(consumer, now - timedelta(minutes=5), 30, every_ms=1_000)
    settle(consumer, now - timedelta(seconds=20), 60, every_ms=100)
    settle(other, now - timedelta(seconds=10), 20, every_ms=100)
    pace = settlement_history.read_pace(USING, now)
    assert (pace.per_minute(), pace.per_minute(consumer.pk), pace.per_minute(-1)) == (80, 60, 0)
    assert not pace.is_estimate


def test_a_pace_that_is_too_fast_to_count_is_that_of_a_shorter_time(
    consumer: Consumer, now: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlement_history, "LATEST", 100)
    settle(consumer, now - timedelta(seconds=20), 200, every_ms=100)
    pace = settlement_history.read_pace(USING, now)
    assert pace.is_estimate
    assert pace.per_minute() == pytest.approx(600, rel=0.02)
    assert tiles.throughput_tile(pace, None).value.startswith("≈ ")


def test_the_estimate_of_a_busy_minute_is_close(consumer: Consumer, now: datetime) -> None:
    start = ranges.DEFAULT.slices(now)[-3].start
    settle(consumer, start, 5_000, every_ms=12)
    [point] = [point for point in estimated_hour(now).points if point.settled]
    assert point.is_estimate
    assert point.settled == pytest.approx(5_000, rel=0.02)
    assert point.dead == pytest.approx(500, rel=0.05)


def test_the_estimate_of_a_burst_is_not_extrapolated(consumer: Consumer, now: datetime) -> None:
    start = ranges.DEFAULT.slices(now)[-3].start
    settle(consumer, start, 3 * recent.CAP, every_ms=1)
    [point] = [point for point in estimated_hour(now).points if point.settled]
    assert point.settled == pytest.approx(3 * recent.CAP, rel=0.05)


def test_the_cap_limits_the_rows_that_are_read_for_an_estimate(
    consumer: Consumer, now: datetime
) -> None:
    slice = ranges.DEFAULT.slices(now)[-3]
    settle(consumer, slice.start, 20_000, every_ms=3)
    query("ANALYZE pulljobs_archived_job")
    most = recent.SPANS * (recent.CAP + 1)
    assert most / 2 < rows_read(recent.params([slice])) <= most


def rows_read(params: dict[str, Any]) -> float:
    """Return how many rows of the archive the statement `recent` reads with these parameters."""
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
    """A redriven job adds the wait of its first settlement, and none for the second."""
    job = JobFactory.create(consumer=consumer, state=State.DEAD)
    jobs.redrive(USING, [job.id])
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer, 1)])
    query("UPDATE pulljobs_archived_job SET created_at = created_at - interval '1 day'")
    total = last_hour(now + MINUTE).consumers[consumer.pk]
    assert (total.delivered, total.dead) == (1, 1)
    assert total.waits
    assert total.waits[0] == total.waits[2] > 85_000
    query("UPDATE pulljobs_archived_job SET created_at = claimed_at WHERE state = 'DEAD'")
    assert last_hour(now + MINUTE).consumers[consumer.pk].waits == (0.0, 0.0, 0.0)


def test_a_retried_or_revived_job_adds_no_wait(consumer: Consumer, now: datetime) -> None:
    JobFactory.create(consumer=consumer, state=State.DELIVERED)
    assert last_hour(now + MINUTE).consumers[consumer.pk].waits is not None
    for again in ("deliveries = 2", "deliveries = 1, retry_count = 1"):
        query(f"UPDATE pulljobs_archived_job SET {again}")
        assert last_hour(now + MINUTE).consumers[consumer.pk].waits is None


def test_a_killed_job_adds_no_run_time(consumer: Consumer, now: datetime) -> None:
    """A killed job has no run time, because the operator does not know when its handler ends."""
    job = JobFactory.create(consumer=consumer, state=State.INFLIGHT)
    jobs.kill(USING, [job.id], reason="killed")
    total = last_hour(now + MINUTE).consumers[consumer.pk]
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
    """No ORM query scans a growing table. Plans of SQL files are in tests/storage/test_plans.py."""
    for chosen in ("hour", "day", "week", "month"):
        assert scans(operator, chosen) == []


def scans(operator: Client, chosen: str) -> list[tuple[str, str]]:
    """Return the page's ORM queries with a sequential scan of a growing table, and that table."""
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
