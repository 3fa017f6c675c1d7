"""Settlements are counted once each, whatever commits late, dies or counts at the same time."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from pulljobs import ids, operating
from pulljobs.conf import settings
from pulljobs.engine import outcomes
from pulljobs.engine.histograms import ERROR_PERCENT, Histogram
from pulljobs.models import ArchivedJob, Consumer, CountProgress, SettlementCount
from pulljobs.models.counts import ALL_CONSUMERS
from pulljobs.states import State
from pulljobs.storage import counting, jobs, nodes, partition_dropping, partitions
from pulljobs.worker.reaper import Reaper
from tests.factories import USING, ConsumerFactory, JobFactory, claimed, published
from tests.sessions import Session, at_once, query, run, session

pytestmark = pytest.mark.django_db(transaction=True)

ARCHIVED = """
INSERT INTO pulljobs_archived_job (id, job_id, message_id, consumer_id, created_at, claimed_at,
    started_at, settled_at, run_seconds, retry_count, deliveries, state, reason)
SELECT made, made, made, %(consumer)s,
    at - interval '1 s' * (n %% 17 + 1), at - interval '0.5 s', at - interval '0.4 s', at,
    CASE WHEN n %% 5 > 0 THEN exp(n %% 13 - 6) END, n %% 3, 1 + n %% 3,
    CASE WHEN n %% 7 = 0 THEN 'DEAD' ELSE 'DELIVERED' END,
    CASE WHEN n %% 7 = 0 THEN 'rejected' END
FROM (
    SELECT n, at,
        (((extract(epoch FROM at) * 1000)::bigint - 1577836800000) << 22) | nextval('pulljobs_id')
            AS made
    FROM generate_series(1, %(count)s) AS n
    CROSS JOIN LATERAL (
        SELECT %(end)s::timestamptz - %(length)s * (1 - n::float8 / %(count)s) AS at
    ) AS time
) AS settled
"""
BY_ARCHIVE = """
SELECT consumer_id, date_bin(%s, settled_at, timestamptz 'epoch') AS starts_at,
    count(*) FILTER (WHERE state = 'DELIVERED'), count(*) FILTER (WHERE state = 'DEAD'),
    sum(retry_count),
    percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY run_seconds),
    percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (
        ORDER BY CASE WHEN deliveries = 1 AND retry_count = 0
            THEN date_part('epoch', claimed_at - created_at) END
    )
FROM (
    SELECT * FROM pulljobs_archived_job
    UNION ALL
    SELECT (jsonb_populate_record(archived, '{"consumer_id": 0}')).*
    FROM pulljobs_archived_job AS archived
) AS settled
WHERE settled_at >= date_bin(%s, now() - %s, timestamptz 'epoch') + %s
GROUP BY 1, 2
"""


@pytest.fixture
def consumer(db: None) -> Consumer:
    return ConsumerFactory.create()


def archive(consumer: Consumer, count: int, length: timedelta = timedelta(minutes=5)) -> None:
    """Archive settlements, spread over `length` up to now. Every seventh job has ended dead."""
    values: dict[str, Any] = {"consumer": consumer.pk, "count": count, "length": length}
    with connection.cursor() as cursor:
        cursor.execute(ARCHIVED, values | {"end": nodes.clock(USING)})


def count() -> int:
    return counting.count_settlements(USING, is_patient=True)


def assert_counts_are_those_of_the_archive() -> None:
    """Assert that stored counts equal those of the archive, and quantiles within their error."""
    for period, (width, age) in counting.KEPT.items():
        kept = min(age, timedelta(hours=2)) if period == "minute" else age
        stored = {
            (row.consumer_id, row.starts_at): row
            for row in SettlementCount.objects.filter(period=period)
        }
        rows = query(BY_ARCHIVE, [width, width, kept, width])
        assert rows
        for consumer_id, starts_at, delivered, dead, retries, runs, waits in rows:
            row = stored[consumer_id, starts_at]
            assert (row.delivered, row.dead, row.retries) == (delivered, dead, retries)
            assert_close(row.run_buckets, row.run_jobs, runs)
            assert_close(row.wait_buckets, row.wait_jobs, waits)


def assert_close(buckets: list[int], jobs: list[int], exact: list[float | None] | None) -> None:
    histogram = Histogram()
    histogram.add(buckets, jobs)
    if exact is None or exact[0] is None:
        assert histogram.quantiles() is None
    else:
        assert histogram.quantiles() == pytest.approx(exact, rel=ERROR_PERCENT / 100, abs=1e-5)


def counted() -> tuple[int, int]:
    """Return two stored counts over all consumers: of settlements, and of jobs that ended dead."""
    [row] = query(
        "SELECT coalesce(sum(delivered + dead), 0)::int, coalesce(sum(dead), 0)::int"
        " FROM pulljobs_settlement_count WHERE period = 'day' AND consumer_id = %s",
        [ALL_CONSUMERS],
    )
    return row[0], row[1]


def test_counts_of_every_period_are_those_of_the_archive(consumer: Consumer) -> None:
    archive(consumer, 3_000, timedelta(days=3))
    assert count() == 3_000
    assert_counts_are_those_of_the_archive()
    archive(ConsumerFactory.create(), 2_000)
    archive(consumer, 500)
    assert count() == 2_500
    assert count() == 0
    assert counted() == (5_500, 428 + 285 + 71)
    assert_counts_are_those_of_the_archive()


def test_a_settlement_that_commits_late_is_counted_once(consumer: Consumer) -> None:
    """A transaction that commits after a later one was counted is counted by the next count."""
    with session() as early, session() as late:
        _settle_in(early, consumer, timedelta(minutes=1))
        assert count() == 0
        _settle_in(late, consumer, timedelta(seconds=1))
        late.commit()
        assert count() == 1
        archive(consumer, 10)
        assert count() == 10
        assert count() == 0
        early.commit()
    assert count() == 1
    assert count() == 0
    assert_counts_are_those_of_the_archive()


def _settle_in(other: Session, consumer: Consumer, ago: timedelta) -> None:
    at = nodes.clock(USING) - ago
    other.execute(
        "INSERT INTO pulljobs_archived_job (id, job_id, message_id, consumer_id, created_at,"
        " settled_at, retry_count, deliveries, state)"
        " VALUES (%s, %s, 1, %s, %s, %s, 0, 1, 'DELIVERED')",
        [ids.first_of(at), ids.first_of(at), consumer.pk, at, at],
    )


def test_workers_that_settle_and_count_at_once_count_every_settlement_once(
    consumer: Consumer,
) -> None:
    batches = [published(consumer, 20) for _batch in range(15)]

    def work(number: int) -> None:
        for batch in batches[number::3] if number < 3 else batches:
            if number < 3:
                held = claimed(consumer, len(batch))
                made = [outcomes.deliver, lambda job: outcomes.reject(job, "bad")]
                jobs.finish(USING, [made[n % 2](job) for n, job in enumerate(held)])
            else:
                count()

    at_once(6, work)
    count()
    assert counted() == (300, 150)
    assert_counts_are_those_of_the_archive()


def test_a_count_that_is_cut_off_is_made_again(consumer: Consumer) -> None:
    archive(consumer, 10)
    count()
    archive(consumer, 20)
    with session() as other:
        [locked] = run(other, "lock_counts", {})
        [row] = run(other, "count_settlements", _params(locked))
        assert row.settlements == 20
        assert count() == 0  # another process counts
    assert counted()[0] == 10
    assert count() == 20
    assert counted()[0] == 30


def _params(locked: Any) -> Mapping[str, Any]:
    widths, ages = zip(*counting.KEPT.values(), strict=True)
    kept = {"periods": list(counting.KEPT), "widths": list(widths), "ages": list(ages)}
    return counting.bounds(locked) | kept


def test_the_counts_of_a_restored_database_are_made_again(consumer: Consumer) -> None:
    """Counts are made again after a restore, when new transactions have lower ids."""
    archive(consumer, 10)
    count()
    CountProgress.objects.update(snapshot="99999999:99999999:")
    query("UPDATE pulljobs_archived_job SET settled_xid = settled_xid + 90000000")
    archive(consumer, 5)
    count()
    assert counted()[0] == 15
    archive(consumer, 5)
    count()
    assert counted()[0] == 20
    assert_counts_are_those_of_the_archive()


def test_a_redriven_job_adds_no_wait_however_long_ago_it_died(consumer: Consumer) -> None:
    """A settlement after a redrive adds no wait, which would include the time as a dead job."""
    for is_counted_between in (True, False):
        job = JobFactory.create(consumer=consumer, state=State.DEAD)
        if is_counted_between:
            count()
        jobs.redrive(USING, [job.id])
        jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer, 1)])
        count()
    # Only the deaths waited: the jobs had not been dead before.
    assert _waits() == 2
    JobFactory.create(consumer=consumer, state=State.DELIVERED)
    count()
    assert _waits() == 3


def _waits() -> int:
    [(waits,)] = query(
        "SELECT sum(jobs)::int FROM pulljobs_settlement_count, unnest(wait_jobs) AS jobs"
        " WHERE period = 'day' AND consumer_id = 0"
    )
    return int(waits)


def test_one_process_counts_in_an_interval(consumer: Consumer) -> None:
    archive(consumer, 5)
    assert counting.count_settlements(USING) == 5
    archive(consumer, 5)
    assert counting.count_settlements(USING) == 0
    query("UPDATE pulljobs_count_progress SET counted_at = counted_at - interval '1 minute'")
    assert counting.count_settlements(USING) == 5


def test_the_first_count_of_a_large_archive_is_left_to_the_command(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first count of a large archive, which takes long, is left to the maintenance command."""
    monkeypatch.setattr("pulljobs.storage.counting.LARGE", 5)
    archive(consumer, 6)
    operating.count_settlements()
    assert counted()[0] == 0
    operating.maintain()
    assert counted()[0] == 6


def test_counts_of_an_empty_archive_are_complete_from_their_minute_on(consumer: Consumer) -> None:
    """Counts that start with an empty archive are complete from the start of that minute on."""
    counting.count_settlements(USING)
    progress = CountProgress.objects.get()
    assert progress.counted_from == progress.counted_at.replace(second=0, microsecond=0)


def test_a_pass_of_the_reaper_counts(consumer: Consumer) -> None:
    archive(consumer, 5)
    node = uuid4()
    nodes.register(USING, node, "host:1")
    Reaper(settings(), node, lambda: None, dict, lambda: None).tick()
    assert counted()[0] == 5


def test_nothing_is_counted_in_the_transaction_of_a_caller(consumer: Consumer) -> None:
    """A count does nothing in the caller's transaction, whose settlements it would count twice."""
    with transaction.atomic():
        archive(consumer, 5)
        assert count() == 0
    assert count() == 5


@pytest.mark.owner
def test_counts_outlive_the_days_of_the_archive(consumer: Consumer) -> None:
    archive(consumer, 5, timedelta(seconds=1))
    operating.maintain()
    [today] = {ids.time_of(row.id).date() for row in ArchivedJob.objects.all()}
    partition_dropping.drop(USING, partitions.Partition("pulljobs_archived_job", today))
    count()
    assert (ArchivedJob.objects.count(), counted()[0]) == (0, 5)
    operating.maintain()


def test_counts_that_no_page_shows_are_deleted(consumer: Consumer) -> None:
    now = datetime.now(UTC)
    for period, (_width, age) in counting.KEPT.items():
        for at in (now - age - timedelta(days=1), now):
            SettlementCount.objects.create(
                period=period,
                consumer_id=consumer.pk,
                starts_at=at,
                delivered=1,
                dead=0,
                retries=0,
                wait_buckets=[],
                wait_jobs=[],
                run_buckets=[],
                run_jobs=[],
            )
    operating.maintain()
    assert [row.starts_at for row in SettlementCount.objects.all()] == [now] * 3
