"""Grafana's dashboard, the alert rules and the guide read only series that are exported."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from importlib.resources import files
from io import StringIO
from itertools import pairwise
from typing import Any

import promql_parser
import pytest
import yaml
from django.conf import settings
from django.core.management import call_command
from django.db.models.functions import Now
from django.test import override_settings

from pulljobs import pulling
from pulljobs.engine import outcomes
from pulljobs.metrics import recorder
from pulljobs.metrics.exposition import GAUGES, answer
from pulljobs.metrics.families import Type, families_counted, families_read
from pulljobs.models import Node
from pulljobs.storage import partitions
from pulljobs.workflows.models import WorkflowRun
from tests.days import no_days
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.guides import texts
from tests.metrics.events import EVERY
from tests.metrics.promql import labels_of, selectors
from tests.metrics.scraping import Samples, parsed

SHIPPED = files("pulljobs.metrics")
DASHBOARD = json.loads((SHIPPED / "grafana.json").read_text())
RULES = yaml.safe_load((SHIPPED / "alerts.yml").read_text())["groups"]
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
ALERTS = [rule for group in RULES for rule in group["rules"]]
TARGETS = [(panel["title"], target) for panel in PANELS for target in panel["targets"]]
OPEN = {"channel", "consumer", "le", "table", "loop", "job", "instance"}
"""Labels whose values depend on the project."""
VARIABLES = {"$__rate_interval": "5m", "$channel": ".*", "$consumer": ".*"}
SHOWN = re.compile(r"{{ *\$?(?:labels\.)?(\w+) *}}")


@pytest.fixture
def exported(transactional_db: None) -> Samples:
    """Return the samples of a process that has counted at least one event of each kind."""
    [run_id] = published(ConsumerFactory.create(channel__name="orders", name="billing"))
    WorkflowRun.objects.create(id=run_id, workflow="fulfil", version=1, waiting_for="approval")
    report = {"serves": ["orders/billing"], "workflows": {"orders/billing": [2, 2]}}
    Node.objects.create(name="w:1", started_at=Now(), heartbeat_at=Now(), report=report)
    for event in EVERY:
        recorder.record(event)
    GAUGES.forget()  # A previous test may have read them.
    with override_settings(PULLJOBS={**settings.PULLJOBS, "METRICS": True}):
        return parsed(answer()[0].decode())


def labels_in(samples: Samples) -> Mapping[str, frozenset[str]]:
    return {name: frozenset(label for label, _value in pairs) for name, pairs in samples}


def expression(text: str) -> Any:
    for variable, value in VARIABLES.items():
        text = text.replace(variable, value)
    return promql_parser.parse(text)


def expressions() -> Iterator[tuple[str, Any]]:
    yield from ((alert["alert"], expression(alert["expr"])) for alert in ALERTS)
    yield from ((title, expression(target["expr"])) for title, target in TARGETS)
    [_scraping, scaling] = texts("docs/guides/metrics.md", "yaml")
    [trigger] = yaml.safe_load(scaling)["triggers"]
    yield "docs/guides/metrics.md", expression(trigger["metadata"]["query"])


def test_families_are_what_is_exported(exported: Samples) -> None:
    labels_by_name = labels_in(exported)
    for family in (*families_counted(), *families_read()):
        if family.type is Type.HISTOGRAM:
            assert labels_by_name[f"{family.name}_bucket"] == {*family.labels, "le"}
            assert labels_by_name[f"{family.name}_count"] == set(family.labels)
        else:
            assert labels_by_name[family.name] == set(family.labels), family.name
    known = {family.name for family in (*families_counted(), *families_read())}
    others = {name for name in labels_by_name if name not in known}
    assert {re.sub("_(bucket|count|sum)$", "", name) for name in others} <= known


def test_expressions_ask_for_series_labels_and_values_that_are_exported(exported: Samples) -> None:
    labels_by_name = labels_in(exported)
    values = {(name, *pair) for name, pairs in exported for pair in pairs}
    for title, expr in expressions():
        for selector in selectors(expr):
            name = str(selector.name)
            assert name in labels_by_name, title
            for matcher in selector.matchers.matchers:
                assert matcher.name in labels_by_name[name], title
                if matcher.name not in OPEN:
                    for value in matcher.value.split("|"):
                        assert (name, matcher.name, value) in values, title


def test_what_is_shown_of_a_result_is_among_its_labels(exported: Samples) -> None:
    labels_by_name = labels_in(exported)
    for alert in ALERTS:
        labels = labels_of(expression(alert["expr"]), labels_by_name)
        shown = re.findall(r"\$labels\.(\w+)", str(alert["annotations"]))
        assert set(shown) <= labels, alert["alert"]
    for title, target in TARGETS:
        labels = labels_of(expression(target["expr"]), labels_by_name)
        assert set(SHOWN.findall(target["legendFormat"])) == labels, title


def test_everything_is_on_the_dashboard(exported: Samples) -> None:
    read = " ".join(target["expr"] for _title, target in TARGETS)
    missing = [
        family.name
        for family in (*families_counted(), *families_read())
        if not re.search(rf"\b{family.name}(_|\b)", read)
    ]
    assert not missing


def test_rules_are_as_prometheus_wants_them() -> None:
    assert max(Counter(alert["alert"] for alert in ALERTS).values()) == 1
    for alert in ALERTS:
        assert alert.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert promql_parser.parse_duration(alert.get("for", "1m")) > timedelta()
        assert alert["labels"]["severity"] in ("warning", "critical")
        assert alert["annotations"].keys() == {"summary", "description"}
        for text in alert["annotations"].values():
            assert text.count("{{") == text.count("}}")


@pytest.mark.owner
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", ["PulljobsPartitionsEnd", "PulljobsRowsInDefaultPartition"])
def test_the_command_that_an_alert_names_helps(name: str) -> None:
    with no_days():
        published(ConsumerFactory.create())
        call_command(*command_of(name), stdout=StringIO())
        assert partitions.count_in_default(USING) == {}
        assert partitions.existing(USING, "pulljobs_message")


@pytest.mark.django_db
def test_the_command_that_an_alert_names_tells_the_error_of_a_job_that_is_tried_again() -> None:
    consumer = ConsumerFactory.create()
    [id] = published(consumer)
    [held] = claimed(consumer)
    pulling.finish([outcomes.retry(held, "ValueError: no such order")])
    *words, job = command_of("PulljobsHandlersFail")
    assert job == "JOB"
    call_command(*words, str(id), stdout=(output := StringIO()))
    assert "ValueError: no such order" in output.getvalue()


def command_of(name: str) -> list[str]:
    """Return the arguments of the management command that an alert names."""
    [description] = (
        alert["annotations"]["description"] for alert in ALERTS if alert["alert"] == name
    )
    [command] = re.findall(r"`manage\.py ([A-Za-z ]+)`", description)
    return str(command).split()


def test_the_dashboard_is_as_grafana_wants_it() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)
    assert {variable["name"] for variable in DASHBOARD["templating"]["list"]} == {
        "datasource",
        "channel",
        "consumer",
    }
    places = [tuple(panel["gridPos"][key] for key in "yxwh") for panel in DASHBOARD["panels"]]
    for (y, x, width, height), (below, beside, *_) in pairwise(sorted(places)):
        assert below >= y + height if below > y else beside == x + width
    for panel in PANELS:
        assert panel["description"].endswith(".")
        assert panel["datasource"]["uid"] == "${datasource}"
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"])
