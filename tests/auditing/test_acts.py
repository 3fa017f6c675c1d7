"""Actions on many jobs change each job once, are recorded, and go on after a crash."""

from collections import Counter
from datetime import timedelta

import pytest
from django.db import transaction

from pulljobs import auditing, operating
from pulljobs.models import AuditedBatch, AuditEntry, Consumer, Job
from pulljobs.states import LIVE, TRANSITIONS, Event, State
from pulljobs.storage import leases
from pulljobs.storage.selecting import Selection
from tests.factories import USING, ConsumerFactory, JobFactory, published

pytestmark = pytest.mark.django_db


def made(consumer: Consumer, **counts: int) -> dict[str, set[int]]:
    return {
        state: {JobFactory.create(consumer=consumer, state=state).id for _ in range(count)}
        for state, count in counts.items()
    }


def asked(event: Event, selection: Selection) -> AuditEntry:
    return auditing.begin(event, selection, by="olga", subject="a test")


def batches(entry: AuditEntry) -> Counter[int]:
    """Return for each job, by its id, the number of batches of an audit entry that contain it."""
    rows = AuditedBatch.objects.filter(entry=entry).values_list("done", flat=True)
    return Counter(id for done in rows for id in done)


@pytest.mark.parametrize("event", auditing.ACTS)
def test_an_action_takes_only_jobs_in_its_states(event: Event) -> None:
    jobs = made(ConsumerFactory.create(), **dict.fromkeys(LIVE, 2))
    meant = {id for state, ids in jobs.items() if state in TRANSITIONS[event].sources for id in ids}
    assert auditing.preview(event, Selection()).jobs == len(meant)
    entry = asked(event, Selection())
    assert not auditing.proceed(60)
    entry.refresh_from_db()
    assert (set(batches(entry)), entry.done, entry.refused) == (meant, len(meant), 0)
    assert entry.finished_at is not None
    for id in meant:
        now = Job.objects.filter(id=id).values_list("state", flat=True).first()
        assert now == TRANSITIONS[event].target


def test_batches_add_up_and_no_job_is_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batches of a redrive have each job once, even if jobs die again before it ends."""
    monkeypatch.setattr(auditing, "BATCH", 3)
    consumer, other = ConsumerFactory.create(), ConsumerFactory.create()
    jobs = made(consumer, DEAD=5)["DEAD"] | made(other, DEAD=5)["DEAD"]
    entry = asked(Event.REDRIVE, Selection())
    turns = 0
    while auditing._proceed(entry.pk):
        operating.kill(Job.objects.values_list("id", flat=True), by="a test")
        turns += 1
        assert turns < 10, "it does not end"
    entry.refresh_from_db()
    assert batches(entry) == Counter(jobs)
    assert (entry.done, entry.batches.count()) == (10, 4)


def test_a_batch_that_is_rolled_back_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "BATCH", 2)
    jobs = made(ConsumerFactory.create(), DEAD=5)["DEAD"]
    entry = asked(Event.REDRIVE, Selection())
    assert auditing._proceed(entry.pk)
    with transaction.atomic(USING):
        assert auditing._proceed(entry.pk)
        transaction.set_rollback(True, using=USING)
    entry.refresh_from_db()
    assert (entry.done, Job.objects.filter(state=State.QUEUED).count()) == (2, 2)
    assert not auditing.proceed(60)
    assert batches(entry) == Counter(jobs)


def test_an_action_does_not_touch_later_jobs() -> None:
    consumer = ConsumerFactory.create()
    entry = asked(Event.KILL, Selection())
    AuditEntry.objects.update(last=0)
    later = published(consumer)
    assert not auditing.proceed(60)
    entry.refresh_from_db()
    assert (entry.done, Job.objects.get().id) == (0, later[0])
    assert Job.objects.get().state == State.QUEUED


def test_each_refused_job_is_reported_with_its_reason() -> None:
    jobs = made(ConsumerFactory.create(), DEAD=1, QUEUED=1, INFLIGHT=1)
    [dead], [queued], [held] = (jobs[state] for state in ("DEAD", "QUEUED", "INFLIGHT"))
    entry = auditing.act(Event.REDRIVE, [dead, queued, held, 17], by="olga")
    [batch] = entry.batches.all()
    assert (batch.done, entry.done, entry.refused) == ([dead], 1, 3)
    assert batch.refused == {
        str(queued): "it is QUEUED, and redrive is for DEAD",
        str(held): "it is INFLIGHT, and redrive is for DEAD",
        "17": "it is no live job any more (delivered or deleted)",
    }


def test_a_stopped_action_leaves_the_rest_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing, "BATCH", 2)
    made(ConsumerFactory.create(), DEAD=5)
    entry = asked(Event.REDRIVE, Selection())
    assert auditing._proceed(entry.pk)
    assert auditing.stop(entry, by="oleg")
    assert not auditing.proceed(60)
    assert not auditing.stop(entry, by="olga")
    entry.refresh_from_db()
    assert (entry.done, entry.stopped_by) == (2, "oleg")


def test_a_requeued_job_is_not_charged_and_its_holder_has_lost_it() -> None:
    job = JobFactory.create(state=State.INFLIGHT)
    assert auditing.act(Event.RELEASE, [job.id], by="olga").done == 1
    now = Job.objects.get()
    assert (now.state, now.retry_count, now.deliveries) == (State.QUEUED, 0, 0)
    assert leases.renew(USING, [job.held]) == {}


def test_rescheduled_jobs_are_due_at_that_time_and_blocked_ones_stay() -> None:
    consumer = ConsumerFactory.create(exclusive_keys=True)
    free, blocked = published(consumer, 2, key="a")
    Job.objects.filter(id=blocked).update(available_at=None)
    due = Job.objects.get(id=free).available_at
    assert due is not None
    at = due + timedelta(hours=1)
    entry = auditing.act(Event.RESCHEDULE, [free, blocked], by="olga", at=at)
    assert Job.objects.get(id=free).available_at == at
    assert entry.batches.get().refused == {str(blocked): "it is blocked behind its key"}
    with pytest.raises(ValueError, match="time zone"):
        operating.reschedule([free], at=at.replace(tzinfo=None))
    beyond = at + timedelta(days=36_501)
    with pytest.raises(ValueError, match="100 years"):
        operating.reschedule([free], at=beyond)
    with pytest.raises(ValueError, match="100 years"):
        auditing.begin(Event.RESCHEDULE, Selection(), by="olga", subject="a test", at=beyond)
