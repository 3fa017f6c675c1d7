"""Every event on a job in every state: the table of `pulljobs.states` is what the SQL does."""

from collections.abc import Callable
from datetime import timedelta
from itertools import product
from uuid import uuid4

import pytest

from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Lease
from pulljobs.states import TRANSITIONS, Event, Reason, State
from pulljobs.storage import jobs, leases
from tests.factories import LEASE, MAX_LEASE, USING, ConsumerFactory, JobFactory, MadeJob, claimed
from tests.sessions import contents, pass_time, query

pytestmark = pytest.mark.django_db
MISSING = None


def take(source: State) -> Callable[[MadeJob], object]:
    return lambda job: jobs.take(
        USING,
        job.consumer.pk,
        job.id,
        source=source,
        lease_duration=LEASE,
        max_lease=MAX_LEASE,
        via=Lease.Via.POST,
    )


def finish(settlement: Callable[[Held], outcomes.Settlement]) -> Callable[[MadeJob], object]:
    return lambda job: jobs.finish(USING, [settlement(job.held)])


def reap(_job: MadeJob) -> None:
    pass_time()
    jobs.reap(USING, 10)


DO: dict[Event, Callable[[MadeJob], object]] = {
    Event.CLAIM: take(State.QUEUED),
    Event.REVIVE: take(State.DEAD),
    Event.RENEW: lambda job: leases.renew(USING, [job.held]),
    Event.DELIVER: finish(outcomes.deliver),
    Event.REJECT: finish(lambda held: outcomes.reject(held, "bad")),
    Event.RETRY: finish(lambda held: outcomes.retry(held, "bad")),
    Event.RELEASE: finish(outcomes.release),
    Event.SUSPEND: finish(lambda held: outcomes.suspend(held, timedelta(hours=1))),
    Event.EXPIRE: reap,
    Event.KILL: lambda job: jobs.kill(USING, [job.id], reason=Reason.KILLED),
    Event.REDRIVE: lambda job: jobs.redrive(USING, [job.id]),
    Event.RESCHEDULE: lambda job: jobs.reschedule(USING, [job.id], at=None),
    Event.DELETE: lambda job: jobs.delete(USING, [job.id]),
}
CASES = list(product(Event, State))


def made(state: State | None, **options: object) -> MadeJob:
    """Make a job in this state. If it is not in flight, an old lease still lists its id."""
    consumer = ConsumerFactory.create(**options)
    if state is MISSING:
        return MadeJob(1, consumer, Held(1, uuid4()))
    job: MadeJob = JobFactory.create(consumer=consumer, state=state)
    if state is not State.INFLIGHT:
        query(
            "INSERT INTO pulljobs_lease"
            " (lease_token, consumer_id, via, claimed_at, leased_until, hard_end, job_ids)"
            " SELECT %s, %s, 'worker', now(), now() + '1 hour', now() + '1 hour',"
            " ARRAY[%s]::bigint[]",
            [job.held.lease_token, consumer.pk, job.id],
        )
    return job


def state_of(job: MadeJob) -> State | None:
    live = query("SELECT state FROM pulljobs_job WHERE id = %s", [job.id])
    last = query(
        "SELECT state FROM pulljobs_archived_job WHERE job_id = %s ORDER BY id DESC", [job.id]
    )
    if live:
        return State(live[0][0])
    return State(last[0][0]) if last and last[0][0] == State.DELIVERED else None


@pytest.mark.parametrize(
    ("event", "state"),
    [(event, state) for event, state in CASES if state in TRANSITIONS[event].sources],
)
def test_a_legal_event_leads_where_the_table_says(event: Event, state: State) -> None:
    job = made(state)
    DO[event](job)
    assert state_of(job) == TRANSITIONS[event].target


@pytest.mark.parametrize("event", [event for event in Event if TRANSITIONS[event].exhausted])
def test_an_event_without_retries_left_leads_to_its_other_end(event: Event) -> None:
    job = made(State.INFLIGHT, max_retries=0)
    DO[event](job)
    assert state_of(job) == TRANSITIONS[event].exhausted


@pytest.mark.parametrize(
    ("event", "state"),
    [
        (event, state)
        for event, state in product(Event, [*State, MISSING])
        if state not in TRANSITIONS[event].sources
    ],
)
def test_any_other_event_changes_nothing(event: Event, state: State | None) -> None:
    job = made(state)
    held = JobFactory.create(consumer=job.consumer, state=State.INFLIGHT)
    tables = ["pulljobs_job", "pulljobs_archived_job"]
    if event is Event.EXPIRE:
        query(
            "UPDATE pulljobs_lease SET leased_until = now() + '2 days' WHERE lease_token = %s",
            [held.held.lease_token],
        )
    else:
        tables.append("pulljobs_lease")
    before = contents(*tables)
    DO[event](job)
    assert contents(*tables) == before


@pytest.mark.parametrize("state", list(State))
def test_a_claim_takes_queued_jobs_only(state: State) -> None:
    job = made(state)
    taken = [held.job_id for held in claimed(job.consumer, 10)]
    assert taken == ([job.id] if state is State.QUEUED else [])


HOLDER = [
    Event.RENEW,
    Event.DELIVER,
    Event.REJECT,
    Event.RETRY,
    Event.RELEASE,
    Event.SUSPEND,
]


@pytest.mark.parametrize("event", HOLDER)
def test_a_lost_lease_does_nothing_to_the_next_holder(event: Event) -> None:
    lost = made(State.QUEUED)
    [held] = claimed(lost.consumer)
    assert held.job_id == lost.id
    before = contents()
    DO[event](lost)
    assert contents() == before


def test_a_result_of_a_lost_lease_is_not_delivered() -> None:
    lost = made(State.QUEUED)
    [_held] = claimed(lost.consumer)
    before = contents()
    jobs.finish(USING, [outcomes.deliver(lost.held, "1")])
    assert contents() == before


@pytest.mark.parametrize("event", HOLDER)
def test_a_token_that_never_was_does_nothing(event: Event) -> None:
    job = made(State.INFLIGHT)
    before = contents()
    DO[event](MadeJob(job.id, job.consumer, Held(job.id, uuid4())))
    assert contents() == before


@pytest.mark.parametrize("source", [State.QUEUED, State.DEAD])
def test_another_consumer_can_not_take_a_job_by_its_id(source: State) -> None:
    job = made(source)
    before = contents()
    assert take(source)(MadeJob(job.id, ConsumerFactory.create(), job.held)) is None
    assert contents() == before
