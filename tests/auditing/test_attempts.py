"""Attempts that are not in the archive are kept until retention drops them."""

from datetime import timedelta

import pytest
from django.test import override_settings

from pulljobs import ids, operating
from pulljobs.engine import outcomes
from pulljobs.models import Attempt
from pulljobs.states import State
from pulljobs.storage import jobs, leases
from tests.factories import USING, ConsumerFactory, JobFactory, claimed, published

pytestmark = pytest.mark.django_db


def attempts() -> list[tuple[str, int, str | None]]:
    return list(Attempt.objects.order_by("pk").values_list("event", "renewals", "error"))


def test_a_claim_that_settles_at_once_leaves_no_attempt() -> None:
    JobFactory.create(state=State.DELIVERED)
    JobFactory.create(state=State.DEAD)
    assert attempts() == []


def test_failures_releases_and_kills_leave_an_attempt() -> None:
    consumer = ConsumerFactory.create()
    published(consumer)
    for settle in (lambda job: outcomes.retry(job, "no luck"), outcomes.release):
        [held] = claimed(consumer)
        assert jobs.finish(USING, [settle(held)]).states
    [held] = claimed(consumer)
    assert operating.kill([held.job_id], by="olga").done
    assert attempts() == [
        ("retry", 0, "no luck"),
        ("release", 0, None),
        ("kill", 0, "killed by olga"),
    ]
    assert set(Attempt.objects.values_list("job_id", flat=True)) == {held.job_id}


def test_renewals_are_counted_for_each_job() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 2)
    first, second = claimed(consumer, 2)
    for _turn in range(3):
        assert leases.renew(USING, [first])
    assert jobs.finish(USING, [outcomes.deliver(first), outcomes.deliver(second)]).states
    assert attempts() == [("deliver", 3, None)]


@pytest.mark.owner
@override_settings(PULLJOBS={"RETENTION": timedelta(days=1)})
def test_attempts_are_dropped_after_the_retention() -> None:
    job = JobFactory.create(state=State.INFLIGHT)
    assert operating.kill([job.id], by="olga").done
    operating.maintain()
    assert Attempt.objects.count() == 1
    old = ids.first_of(ids.time_of(job.id) - timedelta(days=2))
    Attempt.objects.update(id=old)
    operating.maintain()
    assert not Attempt.objects.exists()
