"""State machine of jobs over the broker protocol. Types of consumers are in test_registry.py."""

import gzip
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now

from pulljobs import ids, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import ArchivedJob, Consumer, Job, Lease
from pulljobs.publishing import publish_many
from pulljobs.states import State
from pulljobs.storage.throttles import throttle
from tests.api.caller import Caller, Subscription, job_in, publish, subscription, taken_by_post
from tests.api.management import Manager
from tests.factories import USING
from tests.sessions import contents, pass_time

BASE = timedelta(seconds=32.25)


@pytest.fixture
def orders(db: None) -> Subscription:
    return subscription("orders", "census", retry_jitter=0.0)


@pytest.fixture
def consumer(orders: Subscription) -> Caller:
    return Caller(orders)


def test_a_compressed_body_is_read(consumer: Caller) -> None:
    job, body = publish(), b'{"NextState": "INFLIGHT"}'
    refused = (
        consumer.move(job, body=body, coding="gzip"),
        consumer.move(job, body=body, coding="br"),
    )
    assert [answer.status_code for answer in refused] == [400, 400]
    assert consumer.move(job, body=gzip.compress(body), coding="gzip").status_code == 202
    assert Job.objects.get().state == State.INFLIGHT


@pytest.mark.parametrize(
    ("limit", "status", "shown"),
    [(None, 200, 25), ("1000", 200, 100), ("-1", 400, 0), ("x", 400, 0), ("0", 200, 0)],
)
def test_the_number_of_listed_jobs_is_limited(
    limit: str | None, status: int, shown: int, consumer: Caller
) -> None:
    publish_many("orders", [b"x"] * 110)
    answer: Any = consumer.queued() if limit is None else consumer.queued(limit=limit)
    assert answer.status_code == status
    if status == 200:
        assert len(answer.json()["Result"]) == shown


def test_jobs_come_by_priority_and_then_by_age(consumer: Caller) -> None:
    made = {name: publish(priority=priority) for name, priority in [("a", 1), ("b", 9), ("c", 5)]}
    made["d"] = publish(priority=5)
    answer: Any = consumer.queued()
    listed = [job["ID"] for job in answer.json()["Result"]]
    assert listed == [ids.encode(made[name]) for name in "bcda"]


MOVES = {
    ("QUEUED", "INFLIGHT"),
    ("INFLIGHT", "DELIVERED"),
    ("INFLIGHT", "DEAD"),
    ("DEAD", "INFLIGHT"),
}


@pytest.mark.parametrize("source", list(State))
@pytest.mark.parametrize("target", list(State))
def test_only_four_transitions_are_allowed(
    source: State, target: State, orders: Subscription, consumer: Caller
) -> None:
    job_id = job_in(source, orders)
    before = contents()
    status = consumer.move(job_id, target).status_code
    assert status == (202 if source == target or (source, target) in MOVES else 400)
    assert (contents() == before) == ((source, target) not in MOVES)


@pytest.mark.parametrize(
    ("source", "target", "timeout"),
    [
        ("INFLIGHT", "DELIVERED", 10),
        ("INFLIGHT", "DEAD", 10),
        ("INFLIGHT", "INFLIGHT", 10),
        ("QUEUED", "INFLIGHT", -1),
        ("QUEUED", "INFLIGHT", "10"),
        ("QUEUED", "INFLIGHT", 1e12),
        ("QUEUED", "INFLIGHT", 10**12),
    ],
)
def test_invalid_timeouts_are_refused(
    source: State, target: State, timeout: Any, orders: Subscription, consumer: Caller
) -> None:
    job_id = job_in(State(source), orders)
    before = contents()
    answer = consumer.move(job_id, target, IncrementalTimeout=timeout)
    assert (answer.status_code, contents()) == (400, before)


def test_a_longer_timeout_holds_for_one_lease(orders: Subscription, consumer: Caller) -> None:
    """With a timeout of 100 the lease ends 100 s later than usual, and the next one as usual."""
    job_id = publish()
    assert consumer.move(job_id, "INFLIGHT", IncrementalTimeout=100).status_code == 202
    pass_time(BASE + timedelta(seconds=30))
    assert pulling.reap() is None
    pass_time(timedelta(seconds=70))
    assert pulling.reap() == 1
    job = Job.objects.get()
    assert (job.state, job.retry_count, job.incremental_timeout) == ("QUEUED", 1, None)
    Job.objects.update(available_at=Now())
    answer: Any = consumer.queued()
    assert answer.json()["Result"][0]["IncrementalTimeout"] == 0
    assert consumer.move(job_id, "INFLIGHT").status_code == 202
    lease = Lease.objects.get()
    assert lease.leased_until - lease.claimed_at == BASE


def test_a_dead_job_can_be_taken_again(orders: Subscription, consumer: Caller) -> None:
    """Reviving a dead job counts a retry, even beyond `max_retries`, and gives a new token."""
    job_id, tokens = publish(), set()
    for times in range(1, 8):
        held = _taken(consumer, job_id)
        tokens.add(held)
        assert consumer.move(job_id, "DEAD", lease_token=held).status_code == 202
        assert Job.objects.get().retry_count == times - 1
    assert len(tokens) == 7
    assert orders.consumer.max_retries == 5


def _taken(consumer: Caller, job_id: int) -> str:
    answer = consumer.move(job_id, "INFLIGHT")
    assert answer.status_code == 202
    return answer["X-Broker-Lease-Token"]


def test_a_job_is_dead_after_its_last_retry(orders: Subscription, consumer: Caller) -> None:
    """A job whose lease expires after its last retry is DEAD, with one row in the archive."""
    Consumer.objects.update(max_retries=2)
    job_id = publish()
    for _ in range(3):
        _taken(consumer, job_id)
        assert not ArchivedJob.objects.exists()
        pass_time()
        assert pulling.reap() == 1
        Job.objects.filter(state=State.QUEUED).update(available_at=Now())
    job = Job.objects.get()
    assert (job.state, job.reason, job.retry_count) == ("DEAD", "retries_exhausted", 2)
    assert ArchivedJob.objects.filter(job_id=job_id).count() == 1
    answer: Any = consumer.queued()
    assert answer.json() == {"Result": []}


@pytest.mark.parametrize(
    ("wrong", "status"),
    [
        ("channel token", 403),
        ("consumer token", 403),
        ("push", 412),
        ("another's job", 401),
        ("JSON", 400),
    ],
)
def test_an_invalid_call_changes_no_job(
    wrong: str, status: int, orders: Subscription, consumer: Caller
) -> None:
    """Wrong tokens, a push consumer, another's job and broken JSON are refused."""
    job_id = publish()
    if wrong == "another's job":
        consumer = Caller(subscription("invoices", "census"))
    elif wrong == "push":
        Consumer.objects.update(type="push")
    elif wrong != "JSON":
        consumer.tokens[f"X-Broker-{wrong.split()[0].title()}-Token"] = "guessed"
    before = contents()
    answer = consumer.move(job_id, "INFLIGHT", body=b"{" if wrong == "JSON" else None)
    assert (answer.status_code, contents()) == (status, before)


def test_jobs_of_a_push_consumer_are_pulled_after_it_changes_its_type(
    orders: Subscription, consumer: Caller, manager: Manager
) -> None:
    """After a change to pull, a push under way can still deliver, and queued jobs can be pulled."""
    path = "/channel/orders/consumer/census"
    fields = {"callbackUrl": "http://example.com", "token": orders.consumer_token}
    manager.put(path, manager.get(path), type="push", **fields)
    for _ in range(4):
        publish()
    claim = pulling.Puller(USING, orders.consumer, via=Lease.Via.PUSH).claim(1)
    assert claim.taken is not None
    assert consumer.queued().status_code == 412
    assert manager.put(path, manager.get(path), type="pull", **fields).status_code == 200
    answer: Any = consumer.queued()
    listed = [job["ID"] for job in answer.json()["Result"]]
    assert len(listed) == 3
    assert all(_taken(consumer, ids.decode(id)) for id in listed)
    pushed = Held(claim.jobs[0][0].id, claim.taken.lease_token)
    assert pulling.finish([outcomes.deliver(pushed)]).states == {pushed.job_id: State.DELIVERED}


def test_from_pull_to_push(orders: Subscription, consumer: Caller) -> None:
    """After a change to push, job POSTs settle jobs in flight by their tokens, and claim none."""
    held, other, dead = (taken_by_post(orders, publish()) for _ in range(3))
    assert pulling.finish([outcomes.reject(dead, "no good")]).states
    waits = publish()
    Consumer.objects.update(type="push")
    before = contents()
    for refused in (
        consumer.move(held.job_id, "DELIVERED"),
        consumer.move(held.job_id, "DELIVERED", lease_token=other.lease_token),
        consumer.move(held.job_id, "DELIVERED", lease_token="nonsense"),
        consumer.move(waits, "INFLIGHT", lease_token=held.lease_token),
        consumer.move(dead.job_id, "INFLIGHT", lease_token=dead.lease_token),
    ):
        assert (refused.status_code, contents()) == (412, before)
    assert consumer.move(held.job_id, "DELIVERED", lease_token=held.lease_token).status_code == 202
    assert consumer.move(other.job_id, "DEAD", lease_token=other.lease_token).status_code == 202


def test_a_job_post_takes_nothing_above_max_in_flight(
    orders: Subscription, consumer: Caller
) -> None:
    """At `max_in_flight` jobs in flight, a job POST gets 409 with the reason. Nothing changes."""
    Consumer.objects.update(max_in_flight=1)
    taken_by_post(orders, publish())
    job_id = publish()
    before = contents()
    answer = consumer.move(job_id, "INFLIGHT")
    assert (answer.status_code, contents()) == (409, before)
    assert b"The consumer or its limit group holds as many jobs as it may" in answer.content


def test_a_job_post_takes_nothing_of_a_throttled_consumer(
    orders: Subscription, consumer: Caller
) -> None:
    job_id = publish()
    throttle(USING, {orders.consumer.pk: 60.0})
    before = contents()
    answer = consumer.move(job_id, "INFLIGHT")
    assert (answer.status_code, contents()) == (429, before)
    assert 30 < int(answer["Retry-After"]) <= 60
    assert b"A handler or an endpoint has throttled the consumer or the key" in answer.content


def test_a_job_post_takes_nothing_above_the_rate(orders: Subscription, consumer: Caller) -> None:
    """Above the rate a job POST gets 429 with the seconds until the next token, and no job."""
    orders.consumer.rate, orders.consumer.rate_burst = "60/h", 1
    orders.consumer.save()
    assert consumer.move(publish(), "INFLIGHT").status_code == 202
    job_id = publish()
    before = contents()
    answer = consumer.move(job_id, "INFLIGHT")
    assert (answer.status_code, contents()) == (429, before)
    assert 30 < int(answer["Retry-After"]) <= 60
    assert b"The rate of the consumer, its limit group or the key allows" in answer.content


def test_a_job_post_takes_nothing_of_a_busy_key(orders: Subscription, consumer: Caller) -> None:
    Consumer.objects.update(exclusive_keys=True)
    first, second = publish(key="k"), publish(key="k")
    assert consumer.move(first, "INFLIGHT").status_code == 202
    before = contents()
    answer = consumer.move(second, "INFLIGHT")
    assert (answer.status_code, b"key" in answer.content) == (409, True)
    assert contents() == before
    assert consumer.move(first, "DELIVERED").status_code == 202
    assert consumer.move(second, "INFLIGHT").status_code == 202


def test_a_job_post_takes_nothing_above_the_limit_of_its_key(
    orders: Subscription, consumer: Caller
) -> None:
    """Above the limit of its key a job POST gets 409, which advises to settle a job in flight."""
    orders.consumer.max_in_flight_per_key = 2
    orders.consumer.save()
    first, second, third = (publish(key="k") for _ in range(3))
    assert consumer.move(first, "INFLIGHT").status_code == 202
    assert consumer.move(second, "INFLIGHT").status_code == 202
    answer = consumer.move(third, "INFLIGHT")
    assert answer.status_code == 409
    assert b"The key of the job has as many jobs in flight as it may" in answer.content
    assert b"settle one of those in flight" in answer.content
