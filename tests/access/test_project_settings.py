"""Settings of the project for its own views change nothing about the API."""

from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client, modify_settings, override_settings
from django.views import View
from rest_framework.authentication import TokenAuthentication
from rest_framework.parsers import FileUploadParser
from rest_framework.permissions import IsAdminUser
from rest_framework.renderers import StaticHTMLRenderer
from rest_framework.throttling import BaseThrottle
from rest_framework.versioning import HostNameVersioning
from rest_framework.views import APIView

from pulljobs.api.openapi.document import routes
from pulljobs.models import Producer
from tests.api.caller import subscription
from tests.api.management import user

LOGIN_REQUIRED = "django.contrib.auth.middleware.LoginRequiredMiddleware"
LINES = b'{"Payload": "x"}\n'

pytestmark = pytest.mark.django_db


class Closed(BaseThrottle):
    def allow_request(self, request: Any, view: Any) -> bool:
        return False


DEFAULTS = {
    "authentication_classes": [TokenAuthentication],
    "parser_classes": [FileUploadParser],
    "permission_classes": [IsAdminUser],
    "renderer_classes": [StaticHTMLRenderer],
    "throttle_classes": [Closed],
    "versioning_class": HostNameVersioning,
}
"""Attributes of DRF's views, with values that REST_FRAMEWORK of a project could give them."""
REFUSING = ("permission_classes", "throttle_classes", "versioning_class")
"""Those with which a view refuses requests. Not all views use the others."""


@pytest.fixture
def client(settings: Any) -> Client:
    """Return a client with the tokens of a channel, a consumer and a producer, but no login."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    cache.clear()
    orders = subscription("orders", "census")
    shop = Producer(name="shop")
    token = shop.set_token("shop-token")
    shop.save()
    headers = {
        "X-Broker-Channel-Token": orders.channel_token,
        "X-Broker-Consumer-Token": orders.consumer_token,
        "X-Broker-Producer-ID": "shop",
        "X-Broker-Producer-Token": token,
    }
    return Client(headers=headers)


def statuses(client: Client) -> dict[str, int]:
    """Return the statuses of requests without a login, and of one whose login is wrong."""
    get, post = client.get, client.generic
    consumer = "/channel/orders/consumer/census"
    answers = {
        "live": get("/livez", headers={"Authorization": "Token wrong"}),
        "document": get("/openapi.json"),
        "broadcast": post("POST", "/channel/orders/broadcast", b"x"),
        "batch": post("POST", "/channel/orders/broadcast-batch", LINES),
        "queued": get(f"{consumer}/queued-jobs"),
        "info": get(f"{consumer}/info"),
        "signal": post("POST", "/signal/no-such-token", b"{}"),
        "unknown": get("/channel/orders/broadcast/"),
        "anonymous": get("/channels"),
    }
    return {name: answer.status_code for name, answer in answers.items()}


def test_defaults_of_rest_framework_do_not_apply(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = statuses(client)
    for name, value in DEFAULTS.items():
        monkeypatch.setattr(APIView, name, value)
    assert statuses(client) == usual
    assert (usual["live"], usual["broadcast"], usual["anonymous"]) == (200, 201, 401)
    views = {each.name: getattr(each.callback, "cls", View) for each in routes()}
    inherited = {name for name, view in views.items() if _inherits_default(view)}
    assert not inherited, "These were not requested above."


def _inherits_default(view: Any) -> bool:
    return any(getattr(view, name, None) is DEFAULTS[name] for name in REFUSING)


@override_settings(REST_FRAMEWORK={"UNAUTHENTICATED_USER": None})
def test_requests_without_a_user_are_anonymous(client: Client) -> None:
    assert client.get("/channels").status_code == 401
    with override_settings(PULLJOBS={"API_ACCESS": "open", "THROTTLES": {"channel": "1/day"}}):
        answers = [client.put("/channel/orders", b"", "text/plain") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [415, 429]


@override_settings(LANGUAGE_CODE="de", PULLJOBS={"THROTTLES": {"queued-jobs": "1/day"}})
def test_refusals_are_in_english_whatever_the_language_of_the_project(client: Client) -> None:
    wrong = client.patch("/channel/orders", headers={"Accept-Language": "fr"})
    assert wrong.content.decode().startswith("PATCH is not allowed at this path: the Allow header")
    queued = [client.get("/channel/orders/consumer/census/queued-jobs") for _ in range(2)]
    sentence = "PULLJOBS['THROTTLES'] limits the requests of this caller: repeat this request in "
    assert queued[1].content.decode().startswith(sentence)


@modify_settings(MIDDLEWARE={"append": LOGIN_REQUIRED})
def test_no_route_needs_the_login_that_the_project_requires_of_its_views(client: Client) -> None:
    user("reader", "view")
    assert client.get("/channels", headers={"Authorization": "Token reader"}).status_code == 200
    assert client.options("/channel/orders/consumer/census/pull").status_code == 200
    closed = [each.name for each in routes() if getattr(each.callback, "login_required", True)]
    assert not closed
