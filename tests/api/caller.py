"""Client of the broker protocol that pulls, and jobs in every state, for tests."""

import json
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from django.http import HttpResponse
from django.test import Client
from django.utils.http import urlencode

from pulljobs import ids, operating, publishing, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Channel, Consumer
from pulljobs.states import State
from pulljobs.storage.rows import Taken
from tests.factories import USING


class Subscription(NamedTuple):
    channel: Channel
    consumer: Consumer
    channel_token: str
    consumer_token: str


def subscription(channel: str, consumer: str, **fields: Any) -> Subscription:
    made = Channel.objects.filter(name=channel).first() or Channel(name=channel)
    channel_token = made.set_token(f"{channel}-token")
    made.save()
    subscribed = Consumer(channel=made, name=consumer, **fields)
    consumer_token = subscribed.set_token(f"{consumer}-of-{channel}-token")
    subscribed.save()
    return Subscription(made, subscribed, channel_token, consumer_token)


class Caller:
    """Client of one consumer, whose `tokens` or `root` a test can make wrong."""

    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self.client = Client(raise_request_exception=True)
        channel, consumer = subscription.channel.name, subscription.consumer.name
        self.root = f"/channel/{channel}/consumer/{consumer}"
        self.tokens = {
            "X-Broker-Channel-Token": subscription.channel_token,
            "X-Broker-Consumer-Token": subscription.consumer_token,
        }

    def queued(self, **query: Any) -> HttpResponse:
        url = f"{self.root}/queued-jobs?{urlencode(query)}"
        return self.client.get(url, headers=self.tokens)  # type: ignore[return-value]  # the client adds to it

    def move(
        self,
        job: int | str,
        state: Any = None,
        *,
        lease_token: UUID | str | None = None,
        body: bytes | None = None,
        content_type: str = "application/json",
        coding: str | None = None,
        **fields: Any,
    ) -> HttpResponse:
        xid = job if isinstance(job, str) else ids.encode(job)
        fence = {} if lease_token is None else {"X-Broker-Lease-Token": str(lease_token)}
        if coding is not None:
            fence["Content-Encoding"] = coding
        sent = json.dumps({"NextState": state, **fields}).encode() if body is None else body
        return self.client.generic(  # type: ignore[return-value]  # the client adds to it
            "POST", f"{self.root}/job/{xid}", sent, content_type, headers=self.tokens | fence
        )


def publish(channel: str = "orders", payload: Any = b"x", **options: Any) -> int:
    """Publish a message. Return the id of its job for the channel's first consumer."""
    return publishing.publish(channel, payload, **options).job_ids[0]


def job_in(state: State, subscription: Subscription) -> int:
    """Make a job in this state and return its id. A job POST claims it unless it stays QUEUED."""
    job_id = publish(subscription.channel.name)
    if state == State.QUEUED:
        return job_id
    held = taken_by_post(subscription, job_id)
    if state == State.DELIVERED:
        assert pulling.finish([outcomes.deliver(held)]).states
    if state == State.DEAD:
        assert pulling.finish([outcomes.reject(held, "no good")]).states
    return job_id


def taken_by_post(subscription: Subscription, job_id: int, seconds: int = 0) -> Held:
    timeout = timedelta(seconds=seconds) or None
    taken = pulling.take(subscription.consumer, job_id, State.QUEUED, incremental_timeout=timeout)
    assert isinstance(taken, Taken)
    return Held(job_id, taken.lease_token)


def claimed_by_worker(subscription: Subscription, job_id: int) -> Held:
    claim = pulling.Puller(USING, subscription.consumer).claim(100)
    assert claim.taken is not None
    assert job_id in {job.id for job, _message in claim.jobs}
    return Held(job_id, claim.taken.lease_token)


def kill(job_id: int) -> None:
    assert operating.kill([job_id], by="a test").done
