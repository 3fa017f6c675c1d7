"""Settings, routes and headers of the pages work unchanged."""

import base64
import gc
import hashlib
import hmac
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from logging.config import DictConfigurator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from django.core.checks import run_checks
from django.test import Client, override_settings
from django.urls import clear_url_caches

from pulljobs import handlers
from pulljobs.engine import telemetry
from pulljobs.states import State
from pulljobs.testing import drain
from tests.access.test_gateway import BODY, SECRET, call
from tests.browser.pages import STRICT
from tests.factories import ConsumerFactory
from tests.guides import forget, modules_of, texts
from tests.handling import registry_of_its_own


@contextmanager
def urls(module: str) -> Iterator[Client]:
    clear_url_caches()
    with override_settings(ROOT_URLCONF=module):
        yield Client()
    clear_url_caches()


@pytest.mark.django_db(transaction=True)
def test_the_code_of_the_readme_works() -> None:
    """The code publishes, and its handler makes an invoice. Stand-ins replace the shop's models."""
    [code] = texts("README.md", "python")
    invoices: list[dict[str, int]] = []
    invoice = SimpleNamespace(objects=SimpleNamespace(create=lambda **row: invoices.append(row)))
    known: dict[str, Any] = {"order": SimpleNamespace(pk=7, customer_id=3), "Invoice": invoice}
    ConsumerFactory.create(channel__name="orders", name="invoicing")
    with registry_of_its_own():
        exec(code, known)
        [ran] = drain()
    assert ran.job.state is State.DELIVERED
    assert invoices == [{"order_id": 7}]


@pytest.mark.django_db(transaction=True)
def test_the_code_of_the_first_page_works(capsys: pytest.CaptureFixture[str]) -> None:
    with registry_of_its_own():
        try:
            made = modules_of("index.md")
            handlers.sync_consumers()
            made["orders.buying"].buy(7)
            assert [ran.job.state for ran in drain()] == [State.DELIVERED]
        finally:
            forget("orders")
    assert capsys.readouterr().out == "an invoice for order 7\n"


def test_the_recorder_of_the_page_on_events_counts() -> None:
    recording = modules_of("reference/events.md")["shop.recording"]
    try:
        telemetry.emit(telemetry.JobsFinished({("deliver", "DELIVERED"): 2}))
    finally:
        recording.forget()
        forget("shop")
    telemetry.emit(telemetry.JobsFinished({("deliver", "DELIVERED"): 1}))
    assert recording.settled == {"DELIVERED": 2}


@pytest.mark.parametrize("code", texts("docs/guides/api-access.md", "python"))
def test_settings_of_api_access_pass_the_checks(code: str) -> None:
    """Each block of settings in the guide passes the system checks."""
    made: dict[str, Any] = {"env": lambda _name: base64.b64encode(b"k" * 32).decode()}
    exec(code, made)
    with override_settings(PULLJOBS=made["PULLJOBS"]):
        assert [check for check in run_checks() if str(check.id).startswith("pulljobs")] == []


def test_the_signature_of_the_guide_on_api_access_opens_the_gateway() -> None:
    """The gateway accepts a header as the guide describes it, and no other signature."""
    [text] = texts("docs/guides/api-access.md", "http")
    name, _, value = text.splitlines()[1].partition(": ")
    now = str(int(time.time()))
    signature = hmac.new(base64.b64decode(SECRET), f"{now}.".encode() + BODY, hashlib.sha256)
    shape = value.replace("1795248000", now).partition("<")[0]
    shown = value.replace("1795248000", now).partition("<")[2]
    assert name == "X-Broker-Signature"
    assert shown == f'hex HMAC-SHA256(secret, "{now}." + body)>'
    with (
        urls("tests.access.test_gateway"),
        override_settings(PULLJOBS={"GATEWAY_SECRETS": [SECRET]}),
    ):
        assert call(shape + signature.hexdigest()).status_code == 200
        assert call(shape + "0" * 64).status_code == 403


@pytest.fixture
def serving() -> Iterator[dict[str, ModuleType]]:
    """Yield the modules of the guide on serving the API. Undo what they tune in the process."""
    thresholds = gc.get_threshold()
    try:
        yield modules_of("guides/serving-the-api.md")
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()
        for module in ("urls", "settings", "asgi"):
            forget(module)


@pytest.mark.django_db
def test_routes_and_middleware_of_the_guide_on_serving_work(
    serving: dict[str, ModuleType],
) -> None:
    settings = serving["settings"]
    with (
        urls("urls") as client,
        override_settings(MIDDLEWARE=settings.MIDDLEWARE, PULLJOBS=settings.PULLJOBS),
    ):
        assert client.get("/livez").status_code == 200
        assert client.get("/no/such/path", headers={"x-request-id": "r-1"})["X-Request-ID"]
        assert [check for check in run_checks() if str(check.id).startswith("pulljobs")] == []


def test_log_lines_of_the_guide_on_serving_have_the_request_id(
    serving: dict[str, ModuleType],
) -> None:
    shown = serving["settings"].LOGGING
    configurator = DictConfigurator(shown)
    record = logging.makeLogRecord({"msg": "hello", "levelname": "INFO"})
    configurator.configure_filter(dict(shown["filters"]["request_id"])).filter(record)
    formatter = configurator.configure_formatter(dict(shown["formatters"]["plain"]))
    assert formatter.format(record) == "INFO [-] hello"


def test_the_application_of_the_guide_on_serving_tunes_its_process(
    serving: dict[str, ModuleType],
) -> None:
    assert callable(serving["asgi"].application)
    assert gc.get_freeze_count() > 0
    assert gc.get_threshold()[:2] == (2_000, 100)


def test_the_logging_of_the_guide_on_workers_works() -> None:
    """The LOGGING of the guide shows log lines of workers from level INFO on."""
    try:
        shown = modules_of("guides/workers.md")["settings"].LOGGING
    finally:
        forget("settings")
    assert shown["loggers"][telemetry.logger.name] == {"handlers": ["console"], "level": "INFO"}
    record = logging.makeLogRecord({"msg": "hello", "levelname": "INFO", "process": 7})
    formatter = DictConfigurator(shown).configure_formatter(dict(shown["formatters"]["plain"]))
    assert formatter.format(record).endswith(" INFO [7] hello")


def test_an_admin_site_of_another_class_has_the_dashboard() -> None:
    try:
        site = modules_of("guides/dashboard.md")["shop.admin"].site
    finally:
        forget("shop")
    assert [model.__name__ for model in site._registry] == ["Dashboard"]


def test_the_policy_of_the_dashboard_is_the_one_browsers_are_tested_with() -> None:
    [shown] = texts("docs/guides/dashboard.md", "http")
    assert shown.splitlines()[1] == f"Content-Security-Policy: {STRICT}"
