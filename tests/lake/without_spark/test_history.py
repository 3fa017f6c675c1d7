"""Ranges of the dashboard have rollups for the time before settlements were counted."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta

import pytest
from django.db.models.functions import Now
from django.test import Client, override_settings

from pulljobs.admin.dashboard import history, ranges
from pulljobs.lake.models import Rollup, RollupRun
from pulljobs.models import Consumer, CountProgress
from tests.dashboard.test_history import crowded, now, scans
from tests.dashboard.test_page import read_dashboard, visible_text
from tests.factories import ConsumerFactory

__all__ = ["crowded", "now"]
pytestmark = pytest.mark.django_db
FEW = {"pulljobs_rollup"}
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
    """The dashboard takes hours before settlements were counted from the rollups, and says so."""
    other = ConsumerFactory.create()
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    rolled_up(consumer, hour, delivered=90, dead=10, retries=7, waits=(0.1, 0.2, 0.3))
    rolled_up(other, hour, delivered=50, dead=0, retries=0, waits=(0.2, 0.4, 0.5))
    counted_from(hour + timedelta(hours=1))
    day = past("day", now)
    assert (day.total.delivered, day.total.dead, day.total.retries) == (140, 10, 7)
    [point] = [point for point in day.points if point.settled]
    assert (point.start, point.waits) == (hour, (0.2, 0.4, 0.5))
    assert past("day", now, consumer.pk).total.waits == (0.1, 0.2, 0.3)
    page = visible_text(read_dashboard(operator, range="day"))
    assert "Earlier settlements are from the rollups of the lake." in page
    assert "Choose a consumer to see its own." in page


def test_rollups_of_all_consumers_are_summed_and_only_those_shown_are_listed(
    consumer: Consumer, now: datetime
) -> None:
    """The history of the dashboard has totals of all consumers, and rows of those it shows."""
    other = ConsumerFactory.create()
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    for back, waits in ((3, (0.1, 0.5, 0.6)), (2, (0.2, 0.3, 0.4))):
        start = hour - timedelta(hours=back)
        rolled_up(consumer, start, delivered=9, dead=1, retries=2, waits=waits)
        rolled_up(other, start, delivered=5, dead=0, retries=0, waits=(0.1, 0.1, 0.1))
    counted_from(now)
    week = past("week", now, shown=[consumer.pk])
    assert (week.total.settled, week.total.waits) == (30, (0.2, 0.5, 0.6))
    assert (set(week.consumers), set(week.trends)) == ({consumer.pk}, {consumer.pk})
    assert week.consumers[consumer.pk].settled == 20
    assert week.trends[consumer.pk][-4:] == [10, 10, 0, 0]
    assert week.is_worst
    assert not past("week", now, consumer.pk).is_worst


def test_settlements_that_are_counted_are_not_taken_from_rollups(
    operator: Client, consumer: Consumer, now: datetime
) -> None:
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=2)
    rolled_up(consumer, hour, delivered=90, dead=10, retries=7, waits=(0.1, 0.2, 0.3))
    counted_from(hour + timedelta(minutes=1))
    assert past("day", now, shown=[consumer.pk]).total.settled == 0
    assert "rollups" not in visible_text(read_dashboard(operator, range="day"))


@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo"])
def test_a_day_of_rollups_bears_its_own_date(
    operator: Client, consumer: Consumer, now: datetime, zone: str
) -> None:
    """The dashboard shows the UTC day of a rollup, whatever the time zone of the operator."""
    today = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    rolled_up(consumer, today, delivered=7, dead=0, retries=0, waits=(0.1, 0.2, 0.3), period="day")
    counted_from(today + timedelta(days=1))
    chosen = ranges.choose("month")
    with override_settings(TIME_ZONE=zone):
        assert chosen.label(today) == f"{today.day} {today:%b}"
        page = read_dashboard(operator, range="month")
    assert f"<title>{today:%Y-%m-%d}: 7 delivered, 0 dead" in page
    assert f'<th scope="row">{today:%Y-%m-%d}</th><td>7</td>' in page


def counted_from(start: datetime) -> None:
    """Set the time from which settlements are counted, also if a reaper has set it before."""
    progress = {"snapshot": "1:1:", "counted_at": start, "open_from": start, "counted_from": start}
    CountProgress.objects.update_or_create(id=1, defaults=progress)


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
