"""Ranges beyond the hour come from the rollups, and show which time the rollups lack."""

import re
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now
from django.test import Client, override_settings

from pulljobs import operating
from pulljobs.admin.dashboard import history, ranges
from pulljobs.lake.models import Rollup, RollupRun
from pulljobs.models import Consumer
from tests.dashboard.test_history import crowded, now, scans
from tests.dashboard.test_page import read_dashboard, visible_text
from tests.factories import ConsumerFactory, published

__all__ = ["crowded", "now"]
pytestmark = pytest.mark.django_db
FEW = {"pulljobs_rollup", "pulljobs_rollup_run"}
"""Tables that do not grow with jobs."""


@pytest.fixture
def consumer(db: None) -> Consumer:
    return ConsumerFactory.create()


def past(
    name: str, now: datetime, consumer_id: int | None = None, shown: Collection[int] = ()
) -> history.History:
    chosen = ranges.choose(name)
    return chosen.source.read_history(chosen, now, consumer_id, shown)


def test_rollups_tell_what_the_archive_need_not_keep(
    operator: Client, consumer: Consumer, now: datetime
) -> None:
    other = ConsumerFactory.create()
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    rolled_up(consumer, hour, delivered=90, dead=10, retries=7, waits=(0.1, 0.2, 0.3))
    rolled_up(other, hour, delivered=50, dead=0, retries=0, waits=(0.2, 0.4, 0.5))
    day = past("day", now)
    assert (day.total.delivered, day.total.dead, day.total.retries) == (140, 10, 7)
    [point] = [point for point in day.points if point.settled]
    assert (point.start, point.waits) == (hour, (0.2, 0.4, 0.5))
    assert past("day", now, consumer.pk).total.waits == (0.1, 0.2, 0.3)
    page = visible_text(read_dashboard(operator, range="day"))
    assert "From the rollups of the lake" in page
    assert "Choose a consumer to see its own." in page


def test_rollups_of_all_consumers_are_summed_and_only_those_shown_are_listed(
    consumer: Consumer, now: datetime
) -> None:
    """There may be thousands of consumers, each with all hours of a week."""
    other = ConsumerFactory.create()
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for back, waits in ((3, (0.1, 0.5, 0.6)), (2, (0.2, 0.3, 0.4))):
        start = hour - timedelta(hours=back)
        rolled_up(consumer, start, delivered=9, dead=1, retries=2, waits=waits)
        rolled_up(other, start, delivered=5, dead=0, retries=0, waits=(0.1, 0.1, 0.1))
    week = past("week", now, shown=[consumer.pk])
    assert (week.total.settled, week.total.waits) == (30, (0.2, 0.5, 0.6))
    assert (set(week.consumers), set(week.trends)) == ({consumer.pk}, {consumer.pk})
    assert week.consumers[consumer.pk].settled == 20
    assert week.trends[consumer.pk][-4:] == [10, 10, 0, 0]
    assert week.is_worst
    assert not past("week", now, consumer.pk).is_worst


def test_what_is_queued_goes_as_fast_as_it_went_while_it_was_counted(
    operator: Client, consumer: Consumer, now: datetime
) -> None:
    """Rollups that began this morning know nothing of six days of the week."""
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    rolled_up(consumer, hour, delivered=100, dead=0, retries=0, waits=(0.1, 0.2, 0.3))
    published(consumer, 10)
    for chosen in ("day", "week"):
        assert past(chosen, now).known == timedelta(hours=1)
        assert "<td>6 min</td>" in read_dashboard(operator, range=chosen)


def test_how_fast_it_went_in_an_unknown_time_is_not_known(
    operator: Client, consumer: Consumer, now: datetime
) -> None:
    """No run records the end of the time that its rollups cover."""
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    rolled_up(consumer, hour, delivered=100, dead=0, retries=0, waits=(0.1, 0.2, 0.3))
    RollupRun.objects.all().delete()
    published(consumer, 10)
    assert re.search(r"</svg></td>\s*<td>–</td>", read_dashboard(operator, range="day"))


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_day_of_rollups_bears_its_own_date(
    operator: Client, consumer: Consumer, now: datetime, zone: str
) -> None:
    """The day is one of UTC, whatever the time zone of the operator."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    rolled_up(consumer, today, delivered=7, dead=0, retries=0, waits=(0.1, 0.2, 0.3), period="day")
    chosen = ranges.choose("month")
    with override_settings(TIME_ZONE=zone):
        assert chosen.label(today) == f"{today.day} {today:%b}"
        page = read_dashboard(operator, range="month")
    assert f"<title>{today:%Y-%m-%d}: 7 delivered, 0 dead" in page
    assert f'<th scope="row">{today:%Y-%m-%d}</th><td>7</td>' in page


def test_without_rollups_the_page_says_how_to_get_them(operator: Client) -> None:
    operating.maintain()
    assert "pulljobs lake rollup writes them" in visible_text(
        read_dashboard(operator, range="week")
    )


def rolled_up(
    consumer: Consumer,
    hour: datetime,
    *,
    delivered: int,
    dead: int,
    retries: int,
    waits: tuple[float, float, float],
    period: str = "hour",
) -> None:
    low, middle, high = waits
    Rollup.objects.create(
        period=period,
        starts_at=hour,
        channel=consumer.channel,
        consumer=consumer,
        delivered=delivered,
        dead=dead,
        retries=retries,
        wait_p50=low,
        wait_p95=middle,
        wait_p99=high,
        last_settled_at=hour + timedelta(minutes=59),
    )
    RollupRun.objects.create(
        location="lake",
        archive_run=1,
        messages_run=1,
        known_until=hour + timedelta(hours=1),
        started_at=Now(),
        finished_at=Now(),
        settlements=1,
        hours=1,
    )


def test_no_query_of_a_range_of_rollups_scans_a_growing_table(
    operator: Client, crowded: None
) -> None:
    assert [table for _sql, table in scans(operator, "day") if table not in FEW] == []
