"""World of the fuzzer: a channel with jobs in every state, and credentials for every route."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from django.contrib.auth import get_user_model
from django.core.wsgi import get_wsgi_application
from rest_framework.authtoken.models import Token
from schemathesis import Case, openapi, serializer
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema

from pulljobs import batches, ids, schedules
from pulljobs.api.broker.registry import render_http_date
from pulljobs.models import Channel, Consumer, LimitGroup, Producer
from pulljobs.publishing import publish_many
from pulljobs.schedules.models import Schedule
from pulljobs.scheduling import schedule
from pulljobs.states import State
from pulljobs.workflows.models import WorkflowRun
from tests.api.caller import Subscription, claimed_by_worker, job_in, publish, subscription

PLACES = {
    "channel": ["orders"],
    "consumer": ["census", "census", "census", "hook"],
    "producer": ["shop"],
    "job": [*State, "WORKER"],
    "message": ["first"],
    "schedule": ["daily"],
    "batch": ["BATCH"],
    "run": ["WORKER"],
    "signal": ["approval"],
    "group": ["stripe-api"],
}
"""Values for parameters of paths: names that exist, or keys of ids in `World.known_ids`."""

EXCLUDED = [positive_data_acceptance, negative_data_rejection, ignored_auth]
"""Checks of schemathesis that are left out, because they do not hold for this API.

A precondition can refuse a good body, and any text can be a path or a header. Other tests show
which requests are refused.
"""


@serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Return the value as two lines of NDJSON, the body of a batch of messages."""
    line = value if isinstance(value, bytes) else json.dumps(value).encode()
    return line + b"\n" + line


def in_this_process(document: Path) -> OpenApiSchema:
    """Load the API that the document describes, to be called in this process."""
    described: dict[str, Any] = json.loads(document.read_text("utf-8"))
    schema = openapi.from_dict(described | {"servers": [{"url": "/"}]})
    schema.app = get_wsgi_application()
    return schema


class World(NamedTuple):
    orders: Subscription
    known_ids: dict[str, str]
    headers: dict[str, str]
    last_modified: str
    """Last-Modified of all rows that can be PUT."""

    @classmethod
    def made(cls) -> "World":
        orders = subscription("orders", "census", lease_duration="1:00:00")
        url = "https://example.com/"
        hook = subscription("orders", "hook", type="push", callback_url=url).consumer
        hook.set_token(orders.consumer_token)
        hook.save()
        producer = Producer(name="shop")
        producer.set_token("shop-token")
        producer.save()
        user = get_user_model().objects.create_superuser("root")
        headers = {
            "Authorization": f"Token {Token.objects.create(user=user).key}",
            "X-Broker-Channel-Token": orders.channel_token,
            "X-Broker-Consumer-Token": orders.consumer_token,
            "X-Broker-Producer-ID": "shop",
            "X-Broker-Producer-Token": "shop-token",
        }
        in_an_hour = datetime.now(UTC) + timedelta(hours=1)
        schedule(orders.channel, b"later", in_an_hour, message_id="first", producer=producer)
        schedules.create("daily", "orders", b"\x89PNG", cron="0 6 * * *")
        LimitGroup.objects.create(name="stripe-api", max_in_flight=5)
        changed_at = Channel.objects.get().changed_at
        for model in (Consumer, LimitGroup, Producer, Schedule):
            model._default_manager.update(changed_at=changed_at)
        return cls(orders, ids_of(orders), headers, render_http_date(changed_at))

    def answer(self, case: Case[Any], named: int) -> Any:
        """Send the request of a case and check that the document describes the answer.

        `named` 0 leaves the random names in the path, which match no row. Other values choose names
        of rows that exist. Odd values also set the right requeue token and If-Unmodified-Since.
        """
        for name in (case.path_parameters or {}) if named else ():
            there = PLACES[name][named % len(PLACES[name])]
            case.path_parameters[name] = self.known_ids.get(there, there)
        if named and "channel" in (case.query or {}):
            case.query["channel"] = "orders"
        if named % 2 and isinstance(case.body, dict) and "requeue" in case.body:
            case.body["requeue"] = self.orders.consumer_token
        if named % 2 and "If-Unmodified-Since" in (case.headers or {}):
            case.headers["If-Unmodified-Since"] = self.last_modified
        return case.call_and_validate(headers=self.headers, excluded_checks=EXCLUDED)


def ids_of(orders: Subscription) -> dict[str, str]:
    """Make a job in each state, a run, many queued jobs and an open batch.

    Return their ids by state, or by "WORKER" for the run and "BATCH" for the batch.
    """
    publish("orders", b"\x89PNG\r\n\x1a\n", message_id="first")
    jobs: dict[str, int] = {state: job_in(state, orders) for state in State}
    jobs["WORKER"] = publish("orders", {"a": uuid4().hex})
    claimed_by_worker(orders, jobs["WORKER"])
    WorkflowRun.objects.create(id=jobs["WORKER"], workflow="orders/census", version=1)
    publish_many("orders", range(500))
    batch = batches.create("nightly", on_complete=("orders", {"kind": "nightly"}))
    batch.publish("orders", {"number": 1})
    return {name: ids.encode(number) for name, number in {**jobs, "BATCH": batch.id}.items()}
