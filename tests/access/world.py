"""What a fuzzer meets: a channel with jobs in every state, and credentials that open every door."""

import json
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from django.contrib.auth import get_user_model
from django.core.wsgi import get_wsgi_application
from rest_framework.authtoken.models import Token
from schemathesis import Case, openapi
from schemathesis.specs.openapi.checks import (
    ignored_auth,
    negative_data_rejection,
    positive_data_acceptance,
)
from schemathesis.specs.openapi.schemas import OpenApiSchema

from pulljobs import ids
from pulljobs.models import Producer
from pulljobs.publishing import publish_many
from pulljobs.states import State
from tests.api.caller import Subscription, claimed_by_worker, job_in, publish, subscription

PLACES = {
    "channel": ["orders"],
    "consumer": ["census", "hook"],
    "producer": ["shop"],
    "job": [*State, "WORKER"],
    "message": ["first"],
}
"""What a path may name beside anything: names that are there, or states to find a job by."""

EXCLUDED = [positive_data_acceptance, negative_data_rejection, ignored_auth]
"""A precondition can be in the way of a good body, and any path and header is text in the end; what
is refused, and to whom, is shown elsewhere."""


def in_this_process(document: Path) -> OpenApiSchema:
    """The API that the document tells of, with what is there among what a path may name."""
    made: dict[str, Any] = json.loads(document.read_text("utf-8"))
    made["servers"] = [{"url": "/"}]
    for operation in (one for item in made["paths"].values() for one in item.values()):
        for parameter in operation.get("parameters", []):
            if parameter["in"] == "path":
                there = {"enum": PLACES[parameter["name"]]}
                parameter["schema"] = {"anyOf": [there, {"type": "string", "minLength": 1}]}
    schema = openapi.from_dict(made)
    schema.app = get_wsgi_application()
    return schema


class World(NamedTuple):
    orders: Subscription
    jobs: dict[str, str]
    headers: dict[str, str]

    @classmethod
    def made(cls) -> "World":
        orders = subscription("orders", "census", lease="1:00:00")
        subscription("orders", "hook", type="push", callback_url="https://example.com/")
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
        return cls(orders, jobs_of(orders), headers)

    def answer(self, case: Case[Any]) -> Any:
        """The answer, which is as the document tells."""
        state = (case.path_parameters or {}).get("job")
        if isinstance(state, str):
            case.path_parameters["job"] = self.jobs.get(state, state)
        return case.call_and_validate(headers=self.headers, excluded_checks=EXCLUDED)


def jobs_of(orders: Subscription) -> dict[str, str]:
    """One in each state, besides many that wait."""
    publish("orders", b"\x89PNG\r\n\x1a\n", message_id="first")
    jobs: dict[str, int] = {state: job_in(state, orders) for state in State}
    jobs["WORKER"] = publish("orders", {"a": uuid4().hex})
    claimed_by_worker(orders, jobs["WORKER"])
    publish_many("orders", range(500))
    return {state: ids.encode(job) for state, job in jobs.items()}
