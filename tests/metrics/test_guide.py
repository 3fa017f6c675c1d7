"""The settings, the traces and the scrape configuration of the guides work as shown."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import yaml
from django.test import override_settings
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from example_project.state import BASE_DIR
from pulljobs import checks, handlers
from pulljobs.conf import Settings
from pulljobs.engine import tracing
from pulljobs.metrics.families import SECONDS
from pulljobs.testing import drain
from tests.guides import forget, modules_of, texts
from tests.handling import registry_of_its_own
from tests.metrics.tracing import drawn, without_times

METRICS = "docs/guides/metrics.md"
TRACES = "docs/guides/traces.md"
REFERENCE = "docs/reference/metrics.md"


@pytest.fixture
def code() -> Iterator[dict[str, ModuleType]]:
    with registry_of_its_own():
        try:
            yield modules_of("guides/traces.md")
        finally:
            forget("shop")
            forget("orders")


@pytest.fixture
def exporter(
    code: dict[str, ModuleType], monkeypatch: pytest.MonkeyPatch
) -> Iterator[InMemorySpanExporter]:
    """Set up tracing as the guide does, and keep the spans of the test in memory."""
    made: list[TracerProvider] = []
    monkeypatch.setattr(trace, "set_tracer_provider", made.append)
    code["shop.tracing"].send_spans_to(exporter := InMemorySpanExporter())
    monkeypatch.setattr(trace, "get_tracer", made[0].get_tracer)
    tracing.switch(True)
    yield exporter
    tracing.switch(False)
    made[0].shutdown()


@pytest.mark.django_db(transaction=True)
def test_the_trace_from_the_purchase_to_the_mail(
    code: dict[str, ModuleType],
    exporter: InMemorySpanExporter,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The guide shows the spans of this trace: if the test fails, copy the printed tree into it."""
    handlers.sync_consumers()
    code["orders.buying"].buy(7)
    assert len(drain()) == 2
    provider: Any = getattr(trace.get_tracer, "__self__", None)
    provider.force_flush()
    assert capsys.readouterr().out == "an invoice for order 7\n"
    tree = drawn(exporter.get_finished_spans())
    print(tree)
    [shown] = texts(TRACES, "text")
    assert without_times(tree) == without_times(shown.strip("\n"))


@pytest.mark.parametrize("guide", ["guides/metrics.md", "guides/traces.md"])
def test_the_settings_pass_the_checks(guide: str) -> None:
    with registry_of_its_own():
        try:
            shown = modules_of(guide)["shop.settings"].PULLJOBS
        finally:
            forget("shop")
            forget("orders")
    with override_settings(PULLJOBS=shown):
        assert checks.check_settings() == []


def test_the_scrape_configuration_names_the_port_of_the_command() -> None:
    [config, _scaling] = texts(METRICS, "yaml")
    worker, api = yaml.safe_load(config)["scrape_configs"]
    [console, _files] = texts(METRICS, "console")
    port = console.split("--health-port ")[1].strip()
    targets = worker["static_configs"][0]["targets"]
    assert {target.rpartition(":")[2] for target in targets} == {port}
    assert "basic_auth" in api


def test_a_worker_is_added_for_as_many_jobs_as_a_worker_runs_at_once() -> None:
    [_config, scaling] = texts(METRICS, "yaml")
    [trigger] = yaml.safe_load(scaling)["triggers"]
    command = texts(METRICS, "console")[0].split()
    processes = int(command[command.index("--processes") + 1])
    assert int(trigger["metadata"]["threshold"]) == processes * Settings().CONCURRENCY


def test_the_reference_names_the_buckets_of_the_histograms() -> None:
    assert (
        *(milliseconds / 1000 for milliseconds in (5, 10, 25, 50, 100, 250, 500)),
        *(1, 2.5, 5, 10, 30),
        *(60 * minutes for minutes in (1, 5, 15, 60)),
    ) == SECONDS
    text = " ".join((BASE_DIR / REFERENCE).read_text("utf-8").split())
    assert "5, 10, 25, 50, 100, 250 and 500 ms, at 1, 2.5, 5, 10 and 30 s" in text
