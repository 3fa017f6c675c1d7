"""Passes of the reaper stay short, however much there is to do."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.test import override_settings
from django.utils import timezone

from pulljobs import loops, operating, scheduling
from pulljobs.models import Attempt, Job, Lease, ScheduledMessage
from pulljobs.storage import forgetting
from pulljobs.worker.reaper import Reaper
from tests.factories import ConsumerFactory, JobFactory, claimed, published
from tests.sessions import pass_time, wait_until
from tests.worker.claiming import limits

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)
ID_DAYS = DAY // timedelta(milliseconds=1) << 22


@pytest.fixture
def short_reaper(monkeypatch: pytest.MonkeyPatch) -> Reaper:
    """Return a reaper each of whose duties has time for one batch of one row in a pass."""
    monkeypatch.setattr(loops, "PART_SECONDS", 0.0)
    monkeypatch.setattr(scheduling, "BATCH", 1)
    monkeypatch.setattr(forgetting, "AT_ONCE", 1)
    return Reaper(limits(), uuid4(), lambda: None, dict, lambda: None)


def do_a_pass_that_reaps(short_reaper: Reaper) -> None:
    """Do a pass. Assert that it expires an overdue lease, and that more is to be done at once."""
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer)
    pass_time()
    assert short_reaper.tick() == 0
    assert not Lease.objects.exists()


def test_messages_that_fell_due_in_an_outage_are_dispatched_in_short_passes(
    short_reaper: Reaper,
) -> None:
    channel = ConsumerFactory.create().channel
    for _message in range(3):
        scheduling.schedule(channel, b"x", at=timezone.now() + DAY)
    ScheduledMessage.objects.update(dispatch_at=Now())
    for left in (2, 1, 0):
        do_a_pass_that_reaps(short_reaper)
        assert ScheduledMessage.objects.filter(dispatched_at=None).count() == left
    assert Job.objects.filter(consumer__channel=channel).count() == 3


@pytest.mark.owner
@override_settings(PULLJOBS={"RETENTION": DAY, "PARTITIONS_AHEAD": 0})
def test_the_first_retention_of_a_large_history_goes_in_short_passes(short_reaper: Reaper) -> None:
    operating.kill([JobFactory.create(state="INFLIGHT").id for _job in range(3)], by="olga")
    Attempt.objects.update(id=F("id") - 2 * ID_DAYS)
    left = [3]
    while left[-1]:
        do_a_pass_that_reaps(short_reaper)
        left.append(Attempt.objects.exclude(event="expire").count())
    assert set(left) == {3, 2, 1, 0}
    while short_reaper.tick() == 0:
        pass
    assert short_reaper.tick() > 0


def test_heartbeats_are_not_as_rare_as_passes() -> None:
    beats: list[None] = []
    often, rarely = timedelta(milliseconds=50), timedelta(hours=1)
    settings = limits(HEARTBEAT_INTERVAL=often, REAP_INTERVAL=rarely)
    short_reaper = Reaper(settings, uuid4(), lambda: None, dict, lambda: beats.append(None))
    while (pause := short_reaper.tick()) == 0:
        pass
    published(consumer := ConsumerFactory.create())
    claimed(consumer)
    pass_time()
    assert pause <= often.total_seconds()

    def has_more_beats() -> bool:
        short_reaper.tick()
        return len(beats) >= 3

    wait_until(has_more_beats)
    assert Lease.objects.exists(), "no pass was due"
