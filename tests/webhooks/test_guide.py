"""The receiver of the guide on push delivery takes the deliveries of a worker."""

from collections.abc import Callable, Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.core.checks import run_checks
from django.db import connection
from django.test import override_settings
from django.test.utils import isolate_apps
from django.urls import clear_url_caches
from pytest_django.live_server_helper import LiveServer

from pulljobs.models import Channel, Consumer
from tests.guides import forget, modules_of
from tests.webhooks.sending import job_of, refusal, send

LIMITS: dict[str, Any] = {"PUSH_ALLOWED_NETWORKS": ["127.0.0.0/8", "::1/128"]}


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    """Yield the modules of the guide, with models of an app that is not installed."""
    try:
        with isolate_apps(), pytest.MonkeyPatch.context() as patch:
            shop = SimpleNamespace(label="shop")
            patch.setattr(apps, "get_containing_app_config", lambda _module: shop)
            made = modules_of("guides/push.md")
        yield made
    finally:
        forget("shop")


@pytest.fixture
def receiver(code: dict[str, ModuleType], live_server: LiveServer) -> Iterator[Consumer]:
    """Yield a consumer that pushes to the guide's view, which does not know its secret yet."""
    delivery = code["shop.models"].Delivery
    Channel.objects.create(name="orders")
    secret = code["shop.subscribing"].subscribe(f"{live_server.url}/hooks/orders")
    consumer = Consumer.objects.select_related("channel").get(name="shop")
    assert consumer.signing_secrets() == [secret]
    with connection.schema_editor() as editor:
        editor.create_model(delivery)
    clear_url_caches()
    with override_settings(ROOT_URLCONF="shop.urls"):
        yield consumer
    clear_url_caches()
    with connection.schema_editor() as editor:
        editor.delete_model(delivery)


def test_the_receiver_of_the_guide_verifies_and_deduplicates(
    code: dict[str, ModuleType], receiver: Consumer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The receiver handles a repeated delivery once, and refuses it without the right secret."""
    assert refusal(receiver, **LIMITS).reason.startswith("HTTP 401")
    code["shop.views"].SECRETS.extend(receiver.signing_secrets())
    assert send(receiver, job_of(b"17"), job_of(b"17"), **LIMITS) == [None, None]
    assert capsys.readouterr().out == "Shipping 17\n"


def test_a_delivery_that_failed_in_the_receiver_is_handled_by_the_next_attempt(
    code: dict[str, ModuleType],
    receiver: Consumer,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    views = code["shop.views"]
    views.SECRETS.extend(receiver.signing_secrets())
    monkeypatch.setattr(views, "ship", failing_once(views.ship))
    assert refusal(receiver, job_of(b"17"), **LIMITS).reason.startswith("HTTP 500")
    assert send(receiver, job_of(b"17"), job_of(b"17"), **LIMITS) == [None, None]
    assert capsys.readouterr().out == "Shipping 17\n"


def failing_once(function: Callable[[bytes], None]) -> Callable[[bytes], None]:
    errors = [ConnectionError("no carrier")]

    def fail_once(order: bytes) -> None:
        if errors:
            raise errors.pop()
        function(order)

    return fail_once


def test_the_settings_of_the_guide_pass_the_checks(code: dict[str, ModuleType]) -> None:
    with override_settings(PULLJOBS=code["shop.settings"].PULLJOBS):
        assert not [check for check in run_checks() if str(check.id).startswith("pulljobs")]
