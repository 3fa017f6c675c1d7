"""X-Request-ID is on every answer of the site and in every log line of the request."""

import logging
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.http import HttpRequest, HttpResponse
from django.test import Client, override_settings
from django.test.client import AsyncClient
from django.urls import include, path

from pulljobs.api.middleware import RequestIdFilter
from pulljobs.deployment_checks import check_request_ids
from tests.api.management import Manager

logger = logging.getLogger("tests.request_ids")


def logs(request: HttpRequest) -> HttpResponse:
    logger.warning("at work")
    return HttpResponse()


def breaks(request: HttpRequest) -> HttpResponse:
    raise RuntimeError("as the test asks")


urlpatterns = [
    path("logs", logs),
    path("breaks", breaks),
    path("mounted/here/", include("pulljobs.api.urls")),
]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.handler.addFilter(RequestIdFilter())
    return caplog


@pytest.mark.parametrize(
    ("url", "status"),
    [("/logs", 200), ("/nowhere", 404), ("/breaks", 500), ("/mounted/here/channel/x/y/z", 404)],
)
@override_settings(ROOT_URLCONF=__name__)
def test_every_answer_and_its_log_lines_bear_it(url: str, status: int, logged: Any) -> None:
    client = Client(raise_request_exception=False)
    answer = client.get(url, headers={"X-Request-ID": "r-1"})
    assert (answer.status_code, answer["X-Request-ID"]) == (status, "r-1")
    assert logged.records
    assert {record.request_id for record in logged.records} == {"r-1"}
    made = [client.get(url)["X-Request-ID"] for _ in range(2)]
    assert len(set(made)) == 2
    assert all(len(id) == 32 for id in made)


@override_settings(ROOT_URLCONF=__name__)
def test_under_asgi_too(logged: Any) -> None:
    """Async servers echo and log the X-Request-ID as well."""
    for url in ("/logs", "/nowhere"):
        answer = async_to_sync(AsyncClient().get)(url, headers={"X-Request-ID": "r-1"})
        assert answer["X-Request-ID"] == "r-1"
    assert {record.request_id for record in logged.records} == {"r-1"}


def test_outside_of_requests_there_is_none(logged: Any) -> None:
    """A log line outside of requests has "-" in place of a request id."""
    logger.warning("alone")
    assert [record.request_id for record in logged.records] == ["-"]


@pytest.mark.parametrize(
    "url", ["/producers", "/channel/x/broadcast", "/channel/x/y/z", "/channel/x/consumer/y/pull"]
)
@override_settings(MIDDLEWARE=[])
def test_the_api_s_own_answers_need_no_middleware(url: str, db: None) -> None:
    """Each answer has an X-Request-ID, and is kept by no cache on its way."""
    answer = Client().get(url, headers={"X-Request-ID": "r-1"})
    assert (answer["X-Request-ID"], answer["Cache-Control"]) == ("r-1", "no-store")


# Paths


@pytest.mark.parametrize(
    "url",
    [
        "/producers/",
        "/producer/",
        "/channel",
        "/channel/x/",
        "/channel/x/y",
        "/channel/x/consumer/k/dlq/",
        "/channel/x/consumer/k/job/j/again",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "X"])
def test_unknown_paths_are_404_by_any_method(url: str, method: str, db: None) -> None:
    answer = Client().generic(method, url)
    assert (answer.status_code, answer["Content-Type"]) == (404, "text/plain; charset=utf-8")


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("/producers", "GET, OPTIONS"),
        ("/producer/p", "GET, PUT, OPTIONS"),
        ("/channels", "GET, OPTIONS"),
        ("/channel/c", "GET, PUT, OPTIONS"),
        ("/channel/c/consumers", "GET, OPTIONS"),
        ("/channel/c/consumer/k", "GET, PUT, DELETE, OPTIONS"),
        ("/channel/c/broadcast", "POST, OPTIONS"),
        ("/channel/c/messages", "GET, OPTIONS"),
        ("/channel/c/message/m", "GET, OPTIONS"),
        ("/channel/c/messages-status", "GET, OPTIONS"),
        ("/channel/c/scheduled-messages", "GET, OPTIONS"),
        ("/channel/c/scheduled-message/m", "GET, OPTIONS"),
        ("/channel/c/consumer/k/job/j", "GET, POST, DELETE, OPTIONS"),
        ("/channel/c/consumer/k/job/j/requeue-dead-job", "POST, OPTIONS"),
        ("/channel/c/consumer/k/dlq", "GET, POST, DELETE, OPTIONS"),
        ("/_status", "GET, OPTIONS"),
        ("/job-status", "GET, OPTIONS"),
        ("/dlq-status", "GET, OPTIONS"),
        ("/metrics", "GET, OPTIONS"),
    ],
)
def test_methods(url: str, allowed: str, db: None) -> None:
    """Other methods of a URL get 405 with Allow, before authentication. OPTIONS gets Allow, too."""
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "TRACE"):
        if method not in allowed:
            answer = Client().generic(method, url)
            assert (answer.status_code, answer["Allow"]) == (405, allowed)
    answer = Client().options(url)
    assert (answer.status_code, answer["Allow"]) == (200, allowed)


@override_settings(ROOT_URLCONF=__name__)
def test_links_lead_back_wherever_the_api_is_mounted(manager: Manager) -> None:
    root = "/mounted/here"
    manager.put(f"{root}/channel/orders")
    [link] = manager.get(f"{root}/channels").json()["Result"]
    assert link == f"{root}/channel/orders"
    assert manager.get(manager.get(link).json()["MessagesURL"]).status_code == 200


@override_settings(FORCE_SCRIPT_NAME="/here")
def test_links_have_the_prefix_that_a_proxy_takes_away(manager: Manager) -> None:
    """Under ASGI the path of a request lacks the prefix, which FORCE_SCRIPT_NAME names."""
    manager.put("/channel/orders", token="t-1")
    get = async_to_sync(AsyncClient().get)
    listed = get("/channels", headers=manager.headers).json()
    assert listed["Pages"]["next"].startswith("/here/channels?next=")
    assert get("/openapi.json").json()["servers"] == [{"url": "/here"}]


@override_settings(MIDDLEWARE=[])
def test_a_check_misses_the_middleware() -> None:
    """A missing middleware is a warning only where the API is mounted."""
    assert [problem.id for problem in check_request_ids()] == ["pulljobs.W006"]
    with override_settings(ROOT_URLCONF="django.contrib.auth.urls"):
        assert check_request_ids() == []
    with override_settings(MIDDLEWARE=["pulljobs.api.middleware.request_id"]):
        assert check_request_ids() == []
