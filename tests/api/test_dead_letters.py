"""Dead jobs are listed, queued again and deleted, and a job is read by its id."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils.dateparse import parse_datetime
from django.utils.http import urlencode

from pulljobs import ids, pulling
from pulljobs.engine import outcomes
from pulljobs.models import ArchivedJob, Consumer, Job
from pulljobs.publishing import publish_many
from pulljobs.states import State
from tests.api.caller import Caller, Subscription, job_in, kill, publish, subscription
from tests.api.management import FORM, Manager, user
from tests.factories import USING
from tests.sessions import contents

DLQ = "/channel/orders/consumer/census/dlq"


@pytest.fixture
def orders(db: None) -> Subscription:
    return subscription("orders", "census", callback_url="http://example.com/c", title="Census")


@pytest.fixture
def consumer(orders: Subscription) -> Caller:
    return Caller(orders)


def exhausted(orders: Subscription) -> int:
    """Make a DEAD job that has used up its retries."""
    job_id = job_in(State.DEAD, orders)
    Job.objects.filter(id=job_id).update(retry_count=orders.consumer.max_retries)
    return job_id


def call(consumer: Caller, method: str, path: str, **form: str) -> Any:
    body, kind = (urlencode(form), FORM) if form else ("", "")
    return consumer.client.generic(
        method, f"{consumer.root}{path}", body, kind, headers=consumer.tokens
    )


# GET


def test_the_shape(orders: Subscription, manager: Manager) -> None:
    """The list of dead jobs has exactly the documented fields, and no jobs in other states."""
    job_id = job_in(State.DEAD, orders)
    for state in (State.QUEUED, State.INFLIGHT, State.DELIVERED):
        job_in(state, orders)
    answer = manager.get(DLQ).json()
    [dead] = answer["DeadJobs"]
    assert list(dead) == [
        "ListenerEndpoint",
        "ListenerName",
        "Status",
        "StatusChangedAt",
        "MessageURL",
        "JobRequeueURL",
    ]
    assert (dead["ListenerEndpoint"], dead["Status"]) == ("http://example.com/c", "DEAD")
    settled_at = ArchivedJob.objects.get(job_id=job_id).settled_at
    assert parse_datetime(dead["StatusChangedAt"]) == settled_at
    assert manager.get(dead["MessageURL"]).status_code == 200
    xid = ids.encode(job_id)
    assert dead["JobRequeueURL"] == f"{DLQ[:-4]}/job/{xid}/requeue-dead-job"
    assert set(answer["Pages"]) == {"next", "previous"}


def test_secrets_of_the_endpoint_are_shown_to_those_who_may_change_the_consumer(
    orders: Subscription, consumer: Caller, manager: Manager
) -> None:
    """The endpoint is masked for users who may not change the consumer, and in GET of a job."""
    whole, masked = "http://us:er@example.com/c?key=1", "http://***@example.com/c?***"
    Consumer.objects.update(callback_url=whole)
    dead = ids.encode(job_in(State.DEAD, orders))
    user("reader", "view")
    for reader, shown in ((Manager("reader"), masked), (manager, whole)):
        [listed] = reader.get(DLQ).json()["DeadJobs"]
        [of_message] = reader.get(listed["MessageURL"]).json()["Jobs"]
        assert (listed["ListenerEndpoint"], of_message["ListenerEndpoint"]) == (shown, shown)
    assert call(consumer, "GET", f"/job/{dead}").json()["ListenerEndpoint"] == masked


def test_pages(orders: Subscription, manager: Manager) -> None:
    """Dead jobs are listed on pages of 25, the newest first, until an empty page."""
    made = [job_in(State.DEAD, orders) for _ in range(30)]
    first = manager.get(DLQ).json()
    second = manager.get(first["Pages"]["next"]).json()
    assert len(first["DeadJobs"]) == 25
    urls = [dead["JobRequeueURL"] for dead in first["DeadJobs"] + second["DeadJobs"]]
    assert urls == [
        f"{DLQ[:-4]}/job/{ids.encode(id)}/requeue-dead-job" for id in sorted(made)[::-1]
    ]
    assert manager.get(second["Pages"]["next"]).json() == {"DeadJobs": [], "Pages": {}}
    assert manager.get(DLQ, next="x", previous="y").status_code == 400


def test_listing_needs_the_permission(orders: Subscription) -> None:
    user("clerk", "view", models=("message",))
    user("reader", "view", models=("job",))
    assert [Manager(name).get(DLQ).status_code for name in ("clerk", "reader")] == [403, 200]
    assert Manager().get(DLQ).status_code in (401, 403)


# POST


def test_all_are_queued_again_as_new(orders: Subscription, consumer: Caller) -> None:
    """A requeue queues all dead jobs of the consumer with 0 retries, but not those of another."""
    made = [exhausted(orders) for _ in range(3)]
    other = job_in(State.DEAD, subscription("invoices", "census"))
    answer = call(consumer, "POST", "/dlq", requeue=orders.consumer_token)
    assert (answer.status_code, answer.content) == (202, b"")
    rows = Job.objects.filter(id__in=made).values_list("state", "retry_count")
    assert set(rows) == {("QUEUED", 0)}
    assert Job.objects.get(id=other).state == "DEAD"


@pytest.mark.parametrize(
    ("form", "status"), [({"requeue": "guessed"}, 400), ({"other": "x"}, 400), ({}, 415)]
)
def test_it_takes_the_consumer_s_token_in_a_form(
    form: dict[str, str], status: int, orders: Subscription, consumer: Caller
) -> None:
    """A requeue with a wrong token is 400, and without a form 415. Nothing changes."""
    job_in(State.DEAD, orders)
    before = contents()
    refused = call(consumer, "POST", "/dlq", **form)
    assert (refused.status_code, b"JSON" in refused.content) == (status, False)
    assert contents() == before


def test_an_unknown_consumer(orders: Subscription, consumer: Caller) -> None:
    """Requests for an unknown channel or consumer are 404."""
    for root in ("/channel/x/consumer/census", "/channel/orders/consumer/x"):
        consumer.root = root
        assert call(consumer, "POST", "/dlq", requeue="x").status_code == 404
        assert call(consumer, "DELETE", "/dlq").status_code == 404
        assert call(consumer, "DELETE", "/job/x").status_code == 404


def test_more_than_a_batch(
    orders: Subscription, consumer: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A requeue and a deletion of all dead jobs go on after the first batch of rows."""
    monkeypatch.setattr("pulljobs.operating.BATCH", 2)
    made = [exhausted(orders) for _ in range(5)]
    assert call(consumer, "POST", "/dlq", requeue=orders.consumer_token).status_code == 202
    assert Job.objects.filter(id__in=made, state="QUEUED").count() == 5
    for id in made:
        kill(id)
    Job.objects.update(retry_count=5)
    assert call(consumer, "DELETE", "/dlq").json() == {"deletedCount": 5}


# DELETE


def test_only_what_used_its_retries_up_is_deleted(orders: Subscription, consumer: Caller) -> None:
    """A DELETE of all dead jobs leaves those with retries left, and of one such job it is 404."""
    gone, stays = exhausted(orders), job_in(State.DEAD, orders)
    assert call(consumer, "DELETE", f"/job/{ids.encode(stays)}").status_code == 404
    answer = call(consumer, "DELETE", "/dlq")
    assert (answer.status_code, answer.json()) == (200, {"deletedCount": 1})
    assert list(Job.objects.values_list("id", flat=True)) == [stays]
    assert ArchivedJob.objects.filter(job_id=gone).count() == 1


def test_one_is_deleted(orders: Subscription, consumer: Caller) -> None:
    """A dead job without retries left is deleted once. A repeat of the request is 404."""
    path = f"/job/{ids.encode(exhausted(orders))}"
    answer = call(consumer, "DELETE", path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert call(consumer, "DELETE", path).status_code == 404


@pytest.mark.parametrize("state", [State.QUEUED, State.INFLIGHT, State.DELIVERED])
def test_what_is_not_dead_is_not_deleted(
    state: State, orders: Subscription, consumer: Caller
) -> None:
    job_id = job_in(state, orders)
    Job.objects.update(retry_count=9)
    before = contents()
    assert call(consumer, "DELETE", f"/job/{ids.encode(job_id)}").status_code == 404
    assert call(consumer, "DELETE", "/job/nonsense").status_code == 404
    assert contents() == before


@pytest.mark.parametrize("channel", ["orders", "invoices"])
def test_another_s_job_is_not_deleted(channel: str, orders: Subscription) -> None:
    """A DELETE of another consumer's job is 404, even if both consumers have one name."""
    job_id = exhausted(orders)
    other = subscription(channel, "census" if channel == "invoices" else "digest")
    assert call(Caller(other), "DELETE", f"/job/{ids.encode(job_id)}").status_code == 404
    assert Job.objects.filter(id=job_id).exists()


@pytest.mark.parametrize("header", ["Channel", "Consumer"])
@pytest.mark.parametrize("path", ["/dlq", "/job/x"])
def test_deleting_needs_both_tokens(
    header: str, path: str, orders: Subscription, consumer: Caller
) -> None:
    consumer.tokens[f"X-Broker-{header}-Token"] = "guessed"
    assert call(consumer, "DELETE", path).status_code == 403


def test_a_push_consumer_may_delete(orders: Subscription, consumer: Caller) -> None:
    """Dead jobs of a push consumer can be deleted, one or all."""
    job_id, _other = exhausted(orders), exhausted(orders)
    Consumer.objects.update(type="push")
    assert call(consumer, "DELETE", f"/job/{ids.encode(job_id)}").status_code == 204
    assert call(consumer, "DELETE", "/dlq").json() == {"deletedCount": 1}


# One job


@pytest.mark.parametrize("state", list(State))
def test_a_job_is_queued_again_if_it_is_dead(
    state: State, orders: Subscription, consumer: Caller
) -> None:
    job_id = job_in(state, orders)
    before = contents()
    answer = call(consumer, "POST", f"/job/{ids.encode(job_id)}/requeue-dead-job")
    if state == State.DEAD:
        assert answer.status_code == 202
        assert Job.objects.get().state == State.QUEUED
    else:
        assert (answer.status_code, contents()) == (400, before)


SINCE: dict[State, Callable[[Job], datetime]] = {
    State.QUEUED: lambda job: job.available_at or job.message.published_at,
    State.INFLIGHT: lambda job: job.first_claimed_at or job.message.published_at,
}


@pytest.mark.parametrize("state", list(State))
def test_a_job_is_shown(
    state: State, orders: Subscription, consumer: Caller, manager: Manager
) -> None:
    """A job has the documented fields, valid links and the time of its change, in each state."""
    job_id = job_in(state, orders)
    answer = call(consumer, "GET", f"/job/{ids.encode(job_id)}")
    shown = answer.json()
    assert answer.status_code == 200
    assert list(shown) == [
        "ListenerEndpoint",
        "ListenerName",
        "Status",
        "StatusChangedAt",
        "MessageURL",
        "ChannelURL",
        "ConsumerURL",
        "ProducerURL",
        "JobRequeueURL",
        "Progress",
    ]
    assert (shown["ListenerName"], shown["Status"]) == ("Census", state)
    assert bool(shown["JobRequeueURL"]) == (state == State.DEAD)
    for name in ("Message", "Channel", "Consumer"):
        assert manager.get(shown[f"{name}URL"]).status_code == 200
    assert shown["ProducerURL"] == ""
    if state in SINCE:
        expected = SINCE[state](Job.objects.get())
    else:
        expected = ArchivedJob.objects.get().settled_at
    assert abs((parse_datetime(shown["StatusChangedAt"]) or expected) - expected) < timedelta(
        seconds=1
    )


def test_the_ladder_of_get_and_requeue(orders: Subscription, consumer: Caller) -> None:
    """GET and requeue of a job refuse wrong ids, other consumers, wrong tokens, push consumers."""
    path = f"/job/{ids.encode(job_in(State.DEAD, orders))}"
    other = Caller(subscription("invoices", "census"))
    for method, tail in (("GET", ""), ("POST", "/requeue-dead-job")):
        assert call(consumer, method, f"/job/nonsense{tail}").status_code == 404
        assert call(other, method, f"{path}{tail}").status_code == 401
        consumer.tokens["X-Broker-Consumer-Token"] = "guessed"
        assert call(consumer, method, f"{path}{tail}").status_code == 403
        consumer.tokens["X-Broker-Consumer-Token"] = orders.consumer_token
    Consumer.objects.update(type="push")
    for method, tail in (("GET", ""), ("POST", "/requeue-dead-job")):
        assert call(consumer, method, f"{path}{tail}").status_code == 412
    assert Job.objects.get(id=ids.decode(path[5:])).state == State.DEAD


@pytest.mark.owner
def test_a_job_whose_message_was_dropped(orders: Subscription, consumer: Caller) -> None:
    """A job is still shown, with an empty MessageURL, after retention dropped its message."""
    publish_many("orders", [b"x", b"y"])
    [claimed] = pulling.Puller(USING, orders.consumer).claim(1).jobs
    assert claimed
    job_id = claimed[0].id
    held = Job.objects.get(id=job_id)
    assert held.lease_token is not None
    pulling.finish([outcomes.deliver(outcomes.Held(job_id, held.lease_token))])
    ArchivedJob.objects.update(message_id=1)
    shown = call(consumer, "GET", f"/job/{ids.encode(job_id)}").json()
    assert (shown["Status"], shown["MessageURL"]) == ("DELIVERED", "")
    assert publish("orders")
