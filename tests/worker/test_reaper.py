"""A pass of the reaper, however much there is to do."""

from datetime import timedelta
from uuid import uuid4

import pytest
from django.db.models import F
from django.db.models.functions import Now
from django.test import override_settings
from django.utils import timezone

from pulljobs import operating, scheduling
from pulljobs.models import Attempt, Job, Lease, ScheduledMessage
from pulljobs.storage import forgetting
from pulljobs.worker import reaper
from pulljobs.worker.reaper import Reaper
from tests.factories import ConsumerFactory, JobFactory, claimed, published
from tests.sessions import pass_time, wait_until
from tests.worker.claiming import limits

pytestmark = pytest.mark.django_db(transaction=True)
DAY = timedelta(days=1)
ID_DAYS = DAY // timedelta(milliseconds=1) << 22


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Reaper:
    """Each part of its passes has time for one batch, of one row."""
    monkeypatch.setattr(reaper, "PART_SECONDS", 0.0)
    monkeypatch.setattr(scheduling, "BATCH", 1)
    monkeypatch.setattr(forgetting, "AT_ONCE", 1)
    return Reaper(limits(), uuid4(), lambda: None, dict, lambda: None)


def passes_that_reap(looking: Reaper) -> None:
    """One, and a lease that is over is given back in it; more is to be done at once."""
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer)
    pass_time()
    assert looking.tick() == 0
    assert not Lease.objects.exists()


def test_what_fell_due_in_an_outage_goes_in_short_passes(looking: Reaper) -> None:
    channel = ConsumerFactory.create().channel
    for _message in range(3):
        scheduling.schedule(channel, b"x", at=timezone.now() + DAY)
    ScheduledMessage.objects.update(dispatch_at=Now())
    for left in (2, 1, 0):
        passes_that_reap(looking)
        assert ScheduledMessage.objects.filter(dispatched_at=None).count() == left
    assert Job.objects.filter(consumer__channel=channel).count() == 3


@pytest.mark.owner
@override_settings(PULLJOBS={"RETENTION": DAY, "PARTITIONS_AHEAD": 0})
def test_the_first_retention_of_a_large_history_goes_in_short_passes(looking: Reaper) -> None:
    operating.kill([JobFactory.create(state="INFLIGHT").id for _job in range(3)], by="olga")
    Attempt.objects.update(id=F("id") - 2 * ID_DAYS)
    left = [3]
    while left[-1]:
        passes_that_reap(looking)
        left.append(Attempt.objects.exclude(event="expire").count())
    assert set(left) == {3, 2, 1, 0}
    while looking.tick() == 0:
        pass
    assert looking.tick() > 0


def test_heartbeats_are_not_as_rare_as_passes() -> None:
    beats: list[None] = []
    often, rarely = timedelta(milliseconds=50), timedelta(hours=1)
    settings = limits(HEARTBEAT_INTERVAL=often, REAP_INTERVAL=rarely)
    looking = Reaper(settings, uuid4(), lambda: None, dict, lambda: beats.append(None))
    while (pause := looking.tick()) == 0:
        pass
    published(consumer := ConsumerFactory.create())
    claimed(consumer)
    pass_time()
    assert pause <= often.total_seconds()

    def is_told_again() -> bool:
        looking.tick()
        return len(beats) >= 3

    wait_until(is_told_again)
    assert Lease.objects.exists(), "no pass is due"
