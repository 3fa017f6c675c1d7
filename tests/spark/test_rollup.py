"""Rollups: what is counted equals what SQL counts over the archive, whatever comes late or twice."""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from random import Random

import pytest
from django.db import connection
from pyspark.sql import SparkSession

from pulljobs.errors import LakeError
from pulljobs.models import Consumer, Rollup, RollupRun
from pulljobs.models.rollups import Period
from tests.factories import ConsumerFactory
from tests.spark.history import NODES, NOON, SECOND, History, Lake, lake_at

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)
COUNTED = """
SELECT
    date_trunc(%s, settled_at, 'UTC'),
    consumer_id,
    count(*) FILTER (WHERE state = 'DELIVERED'),
    count(*) FILTER (WHERE state = 'DEAD'),
    sum(retry_count)::int,
    sum(deliveries - 1)::int,
    count(*) FILTER (WHERE deliveries > 1),
    min(settled_at),
    max(settled_at)
FROM pulljobs_archived_job
GROUP BY 1, 2
ORDER BY 1, 2
"""


@pytest.fixture
def history() -> History:
    return History()


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    with lake_at(tmp_path / "lake"):
        yield Lake(spark)


@pytest.fixture
def consumer() -> Consumer:
    return subscribed(NOON - timedelta(days=90))


def subscribed(since: datetime, **fields: object) -> Consumer:
    made = ConsumerFactory.create(**fields)
    Consumer.objects.filter(pk=made.pk).update(created_at=since)
    return made


def counted_by_sql(period: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(COUNTED, [period])
        return cursor.fetchall()


def rolled_up(period: str) -> list[tuple[object, ...]]:
    rows = Rollup.objects.filter(period=period).order_by("starts_at", "consumer")
    return list(
        rows.values_list(
            "starts_at", "consumer", "delivered", "dead", "retries", "redeliveries", "duplicates",
            "first_settled_at", "last_settled_at",
        )
    )  # fmt: skip


def row(period: str, starts_at: datetime, consumer: Consumer) -> Rollup:
    return Rollup.objects.get(period=period, starts_at=starts_at, consumer=consumer)


def some_history(history: History, *consumers: Consumer, rows: int = 200) -> None:
    """Around the end of a day, which is that of a month."""
    random = Random(1)
    for _ in range(rows):
        retries = random.choice([0, 0, 0, 1, 3])
        given = {} if random.random() < 0.8 else {"reason": "rejected", "error": "No."}
        history.settle(
            random.choice(consumers),
            NOON + random.uniform(-3, 15) * HOUR,
            retry_count=retries,
            deliveries=retries + 1,
            node_id=random.choice(NODES),
            **given,
        )


def test_rows_equal_a_plain_count(lake: Lake, history: History, consumer: Consumer) -> None:
    """Of hours, days and months; what is counted anew, or again, comes to the same."""
    some_history(history, consumer, subscribed(NOON, channel=consumer.channel))
    lake.export()
    done = lake.roll_up()
    assert (done.settlements, done.rows["month"]) == (200, 4)
    for period in Period.values:
        assert rolled_up(period) == counted_by_sql(period)
    before = list(
        Rollup.objects.order_by("pk").values("pk", "delivered", "wait_p95", "run_seconds")
    )
    lake.roll_up(anew=True)
    after = list(Rollup.objects.order_by("pk").values("pk", "delivered", "wait_p95", "run_seconds"))
    assert after == before


def test_late_rows_touch_their_hour_only(lake: Lake, history: History, consumer: Consumer) -> None:
    some_history(history, consumer)
    lake.export()
    lake.roll_up()
    others = Rollup.objects.exclude(starts_at=NOON)
    untouched = dict(others.filter(period="hour").values_list("pk", "hot_keys"))
    Rollup.objects.filter(pk__in=untouched).update(published=77)
    history.settle(consumer, NOON + 1800 * SECOND)
    lake.export()
    done = lake.roll_up()
    assert done.hours == 1
    assert Rollup.objects.filter(pk__in=untouched, published=77).count() == len(untouched)
    for period in Period.values:
        assert rolled_up(period) == counted_by_sql(period)


def test_nothing_new_starts_no_spark(lake: Lake, history: History, consumer: Consumer) -> None:
    assert lake.roll_up().hours == 0
    history.settle(consumer, NOON)
    lake.export()
    lake.roll_up()
    asked = lake.opened
    assert lake.roll_up().hours == 0
    assert (lake.opened, RollupRun.objects.count()) == (asked, 1)
