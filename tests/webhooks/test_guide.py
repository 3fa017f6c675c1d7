"""What the guide on push delivery shows, receives what a worker sends."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import override_settings
from django.urls import clear_url_caches
from pytest_django.live_server_helper import LiveServer

from pulljobs.models import Channel, Consumer
from tests.guides import forget, modules_of
from tests.webhooks.sending import job_of, refusal, send


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    try:
        yield modules_of("guides/push.md")
    finally:
        forget("shop")


def test_the_receiver_of_the_guide(
    code: dict[str, ModuleType], live_server: LiveServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """It takes a signed delivery, does it once, and turns away what is not signed by the secret."""
    Channel.objects.create(name="orders")
    secret = code["shop.subscribing"].subscribe(f"{live_server.url}/hooks/orders")
    consumer = Consumer.objects.select_related("channel").get(name="shop")
    limits: dict[str, Any] = {"PUSH_ALLOWED_NETWORKS": ["127.0.0.0/8", "::1/128"]}
    clear_url_caches()
    with override_settings(ROOT_URLCONF="shop.urls"):
        assert refusal(consumer, **limits).reason.startswith("HTTP 401")
        code["shop.views"].SECRETS.append(secret)
        assert send(consumer, job_of(b"17"), job_of(b"17"), **limits) == [None, None]
    clear_url_caches()
    assert capsys.readouterr().out == "Shipping 17\n"


def test_the_settings_of_the_guide(code: dict[str, ModuleType]) -> None:
    with override_settings(PULLJOBS=code["shop.settings"].PULLJOBS):
        assert not [one for one in run_checks() if str(one.id).startswith("pulljobs")]
