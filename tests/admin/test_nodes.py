"""The list of nodes shows which of them are alive, and which consumers they hold back."""

import re
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models.functions import Now
from django.test import Client, override_settings
from django.urls import reverse

from pulljobs import ids, operating
from pulljobs.diagnosis import doctor
from pulljobs.models import Consumer, Node, PullWaiter
from pulljobs.storage import listen, nodes
from tests.circuits import CAUSE, open_circuit, open_circuit_by_task
from tests.diagnosis.commands import text
from tests.factories import USING, ConsumerFactory, claimed, published

pytestmark = pytest.mark.django_db


def test_silent_node_is_shown_as_such_after_two_heartbeats(reader: Client) -> None:
    alive, silent, stopped = uuid4(), uuid4(), uuid4()
    for name, node in {"a": alive, "b": silent, "c": stopped}.items():
        nodes.register(USING, node, f"host-{name}:1")
    Node.objects.filter(pk=silent).update(heartbeat_at=Now() - timedelta(seconds=25))
    nodes.stop(USING, stopped)
    circuits = {"orders/invoicing": {"state": "open", "level": 3, "seconds": 8}}
    nodes.beat(USING, alive, {"circuits": circuits, "loops": {"fetcher": {"alive": True}}})
    page = reader.get(reverse("admin:pulljobs_node_changelist")).content.decode()
    assert re.search(r"silent for (2[5-9]|[3-9]\d) s", page)
    assert ">alive<" in page
    assert ">stopped<" in page
    assert "orders/invoicing (level 3)" in page


def test_a_consumer_that_is_held_back_says_so_in_the_lists_of_channels_and_consumers(
    reader: Client,
) -> None:
    consumer, other = ConsumerFactory.create(), ConsumerFactory.create()
    node, path = uuid4(), f"{consumer.channel.name}/{consumer.name}"
    nodes.register(USING, node, "host:1")
    nodes.beat(USING, node, {"circuits": {path: open_circuit()}})
    for model in ("channel", "consumer"):
        page = reader.get(reverse(f"admin:pulljobs_{model}_changelist")).content.decode()
        assert page.count("held back: its jobs fail") == 1
        assert page.count(f"{path}: {CAUSE}") == 1
    page = _page_of(reader, consumer)
    assert f"Node host:1 holds {path} back: {CAUSE}; one is tried in 3 s." in page
    assert "Node host:1" not in _page_of(reader, other)


def test_a_held_back_task_is_named_in_the_list_of_consumers(reader: Client) -> None:
    consumer = ConsumerFactory.create()
    node, path = uuid4(), f"{consumer.channel.name}/{consumer.name}"
    nodes.register(USING, node, "host:1")
    tasks = [f"shop.tasks.t{number}" for number in range(5)]
    nodes.beat(USING, node, {"circuits": {path: open_circuit_by_task(*tasks)}})
    page = reader.get(reverse("admin:pulljobs_consumer_changelist")).content.decode()
    assert "tasks held back: they fail" in page
    assert f"task shop.tasks.t0 of {path}: {CAUSE}" in page
    assert "and 2 more" in page


def _page_of(browser: Client, consumer: Consumer) -> str:
    url = reverse("admin:pulljobs_consumer_change", args=[consumer.pk])
    return browser.get(url).content.decode()


def test_page_of_a_node_shows_the_parts_of_its_report(reader: Client) -> None:
    node, job = uuid4(), 912_697_529_034_866_688
    nodes.register(USING, node, "host:1")
    loop = {"alive": True, "in_pass_seconds": 4.2, "last_pass_seconds": 0.3, "failures": 6}
    run = {"job": str(job), "consumer": "a/<b>", "slot": 0, "seconds": 90, "ended": None}
    path = "orders/invoicing"
    report = {
        "loops": {"fetcher": loop},
        "running": [run],
        "circuits": {path: open_circuit()},
        "serves": [path],
        "held": 17,
    }
    nodes.beat(USING, node, report)
    page = reader.get(reverse("admin:pulljobs_node_change", args=[node])).content.decode()
    cells = " ".join(re.sub(r"<[^>]+>", " ", page).split())
    assert "held 17 Serves orders/invoicing Holds back orders/invoicing : " + CAUSE in cells
    assert f"{ids.encode(job)} a/&lt;b&gt; 0 90 s" in cells
    assert "fetcher alive 0.3 s ago 4 s 6" in cells
    assert reverse("admin:pulljobs_job_change", args=[job]) in page


@pytest.mark.parametrize(
    "report",
    [
        {},
        {"loops": {"x": {}}, "running": None, "held": "?"},
        {"running": [{"job": "5"}], "circuits": {"a/b": {}}},
        {"loops": None, "serves": None, "circuits": None},
    ],
)
def test_pages_and_commands_survive_any_report_of_a_node(report: Any, reader: Client) -> None:
    node = uuid4()
    nodes.register(USING, node, "host:1")
    nodes.beat(USING, node, report)
    assert reader.get(reverse("admin:pulljobs_node_change", args=[node])).status_code == 200
    page = reader.get(reverse("admin:pulljobs_dashboard_changelist")).content.decode()
    assert "host:1" in page
    assert reader.get(reverse("admin:pulljobs_node_changelist")).status_code == 200
    assert "host:1" in text("inspect", "node", "host:1")
    assert {finding.code for finding in doctor.sick_nodes()} <= {"circuit"}


def test_page_of_a_node_shows_its_report_and_changes_nothing(reader: Client) -> None:
    node = uuid4()
    nodes.register(USING, node, "host:1")
    nodes.beat(USING, node, {"loops": {"fetcher": {"alive": False}}, "held": 7})
    page = reader.get(reverse("admin:pulljobs_node_change", args=[node])).content.decode()
    assert "dead loops: fetcher" in page
    assert "&quot;held&quot;: 7" in page
    assert 'type="submit" value="Save"' not in page


@override_settings(PULLJOBS={"RETENTION": timedelta(days=1)})
def test_maintenance_forgets_old_nodes_that_hold_nothing_and_old_waits() -> None:
    """Maintenance deletes nodes silent for the retention that hold no lease, and ended waiters."""
    old, holding, young = uuid4(), uuid4(), uuid4()
    for node in (old, holding, young):
        nodes.register(USING, node, "host:1")
    Node.objects.exclude(pk=young).update(heartbeat_at=Now() - timedelta(days=2))
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer, node_id=holding)
    for node, patience in ((old, timedelta(days=-1)), (young, timedelta(days=1))):
        listen.wait(USING, [consumer.pk], node, patience)
    operating.maintain()
    assert set(Node.objects.values_list("pk", flat=True)) == {holding, young}
    assert set(PullWaiter.objects.values_list("node_id", flat=True)) == {young}
