"""With a gateway secret set, each request needs a signature, except on paths that are exempt."""

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.checks import run_checks
from django.http import HttpRequest, HttpResponse
from django.test import AsyncClient, Client, override_settings
from django.urls import path

from pulljobs.api import DOCUMENT, error_answers
from pulljobs.api.gateway import guard

SECRET = base64.b64encode(b"shared by both sides").decode()
OLDER = base64.b64encode(b"shared before").decode()
BODY = b'{"NextState": "INFLIGHT"}'


def show_id(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.read(5) + request.read())


async def shown_async(request: HttpRequest) -> HttpResponse:
    return HttpResponse(request.read())


urlpatterns = [
    guard(path("echo", show_id)),
    guard(path("echo-async", shown_async), error_answers.as_problem),
    guard(path("metrics", show_id)),
]


@pytest.fixture(autouse=True)
def _gateway() -> Iterator[None]:
    with override_settings(ROOT_URLCONF=__name__, PULLJOBS={"GATEWAY_SECRETS": [SECRET, OLDER]}):
        yield


def signature(body: bytes = BODY, *, secret: bytes = b"shared by both sides", at: float = 0) -> str:
    """Return the X-Broker-Signature of a body, with a time that is `at` seconds from now."""
    seconds = int(time.time() + at)
    signed = f"{seconds}.".encode() + body
    return f"t={seconds},v1={hmac.new(secret, signed, hashlib.sha256).hexdigest()}"


def call(signed: str | None, body: bytes = BODY, url: str = "/echo") -> Any:
    headers = {} if signed is None else {"X-Broker-Signature": signed}
    return Client().generic("POST", url, body, "text/plain", headers=headers)


def test_what_is_signed_passes_with_its_body() -> None:
    answer = call(signature())
    assert (answer.status_code, answer.content) == (200, BODY)


def test_spaces_may_be_around_the_comma() -> None:
    """A signature with spaces around its comma is accepted, because the webhook-broker does so."""
    assert call(signature().replace(",", " , ")).status_code == 200


def test_an_empty_body_is_signed_too() -> None:
    assert call(signature(b""), b"").status_code == 200


def test_any_of_the_secrets_will_do_so_that_they_can_be_changed() -> None:
    assert call(signature(secret=b"shared before")).status_code == 200


@pytest.mark.parametrize(
    "signed",
    [
        None,
        "",
        "t=1",
        "v1=00",
        "t=1,v1=00,v1=01",
        "t=1,t=2",
        "t=1;v1=00",
        "t=soon,v1=00",
        "t=-1,v1=00",
        "t=1.5,v1=00",
        "t=,v1=",
        "t=" + "9" * 40 + ",v1=00",
        "t= 1,v1=00",
        "t =1,v1=00",
        "\u00e4=1,v1=00",
    ],
)
def test_what_is_no_signature_is_401(signed: str | None) -> None:
    answer = call(signed)
    assert answer.status_code == 401
    assert answer["Content-Type"].startswith("text/plain")
    assert answer["X-Request-ID"]
    assert answer["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    "signed",
    [
        lambda: signature(b"another body"),
        lambda: signature(secret=b"a guess"),
        lambda: f"t={int(time.time())},v1=",
        lambda: f"t={int(time.time())},v1=\u00e4",
    ],
    ids=["another body", "another secret", "empty", "no digits"],
)
def test_a_wrong_signature_is_403(signed: Callable[[], str]) -> None:
    """Signatures of another body, by another secret or without hex digits are refused."""
    assert call(signed()).status_code == 403


@pytest.mark.parametrize(("off", "status"), [(-320, 403), (-280, 200), (280, 200), (320, 403)])
def test_its_time_must_be_near_ours(off: float, status: int) -> None:
    """A signature counts for 300 s before and after its time, by the clock of the server."""
    assert call(signature(at=off)).status_code == status


def test_a_path_that_is_exempt_needs_none() -> None:
    assert call(None, url="/metrics").status_code == 200


def test_a_body_above_every_limit_is_413_before_it_is_hashed() -> None:
    assert call(signature(), b"x" * (8 * 1024 * 1024 + 1)).status_code == 413


def test_async_views_are_behind_it_too() -> None:
    post = async_to_sync(AsyncClient().post)
    signed = {"X-Broker-Signature": signature()}
    passed = post("/echo-async", BODY, "text/plain", headers=signed)
    assert (passed.status_code, passed.content) == (200, BODY)
    refused = post("/echo-async", BODY, "text/plain")
    assert (refused.status_code, refused["Content-Type"]) == (401, "application/problem+json")


@pytest.mark.django_db
def test_every_route_is_behind_it_but_those_that_are_exempt() -> None:
    passed = set()
    with override_settings(ROOT_URLCONF="pulljobs.api.urls"):
        for path_, item in json.loads(DOCUMENT.read_text("utf-8"))["paths"].items():
            for method in item:
                url = path_.replace("{", "").replace("}", "")
                answer = Client().generic(method.upper(), url)
                if answer.status_code != 401 or b"X-Broker-Signature" not in answer.content:
                    passed.add(path_)
    assert passed == {"/_status", "/metrics", "/livez", "/readyz"}


def test_without_a_secret_there_is_no_gateway() -> None:
    with override_settings(PULLJOBS={}):
        assert call(None).status_code == 200


@pytest.mark.parametrize("secrets", [["not base64!"], [""], [None], [SECRET, "\u2603"]])
def test_a_check_names_an_invalid_secret(secrets: list[Any]) -> None:
    with override_settings(PULLJOBS={"GATEWAY_SECRETS": secrets}):
        ids = [check.id for check in run_checks() if str(check.id).startswith("pulljobs")]
    assert ids == ["pulljobs.E011"]
