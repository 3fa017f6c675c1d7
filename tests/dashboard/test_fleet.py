"""The dashboard lists only the first consumers by name. Totals and problems include the others."""

from datetime import timedelta

import pytest
from django.test import Client

from pulljobs.admin.dashboard import attention, consumer_status, failures, workers
from pulljobs.models import Consumer, Node
from pulljobs.states import State
from pulljobs.storage import backlog, dead
from tests.dashboard.test_page import (
    read_dashboard,
    report_heartbeat,
    settled_counts,
    tile,
    visible_text,
)
from tests.factories import ChannelFactory, ConsumerFactory, JobFactory, published

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def hidden(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """Create three consumers, of which the table shows only the first. Return the last."""
    monkeypatch.setattr(consumer_status, "SHOWN", 1)
    for name in ("a", "b"):
        ConsumerFactory.create(channel__name=name)
    return ConsumerFactory.create(channel__name="zoo", name="keeper")


def test_totals_and_problems_include_hidden_consumers(operator: Client, hidden: Consumer) -> None:
    published(hidden, 4)
    published(hidden, 5, delay=timedelta(hours=1))
    JobFactory.create(consumer=hidden, state=State.INFLIGHT)
    JobFactory.create_batch(2, consumer=hidden, state=State.DEAD)
    page = read_dashboard(operator)
    titles = ("Ready", "Due later", "In flight", "Dead")
    assert [tile(page, title).split()[0] for title in titles] == ["4", "5", "1", "2"]
    text = visible_text(page)
    assert "2 jobs are dead." in text
    assert "2 bad zoo / keeper" in text
    assert "No job is dead." not in text
    assert "2 more are not shown." in text


def test_a_hidden_consumer_without_a_worker_is_a_problem(
    operator: Client, hidden: Consumer
) -> None:
    published(hidden)
    assert "Jobs of zoo/keeper wait and no process serves it." in visible_text(
        read_dashboard(operator)
    )


def test_a_consumer_is_served_even_if_its_worker_is_hidden(
    operator: Client, hidden: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SHOWN", 1)
    published(hidden)
    report_heartbeat({"serves": ["zoo/keeper"]})
    for _ in range(2):
        report_heartbeat({"serves": ["a/other"]})
    page = read_dashboard(operator)
    assert "not served" not in visible_text(page)
    assert "3 healthy workers" in tile(page, "In flight")
    assert visible_text(page).count("host:1") == 1


def test_servers_of_the_api_are_no_healthy_workers(operator: Client) -> None:
    report_heartbeat({})
    server = report_heartbeat({})
    Node.objects.filter(pk=server.pk).update(kind=Node.Kind.API)
    assert "1 healthy worker" in tile(read_dashboard(operator), "In flight")


def test_charts_of_a_hidden_consumer_can_be_chosen(operator: Client, hidden: Consumer) -> None:
    JobFactory.create(consumer=ConsumerFactory.create(channel__name="b2"), state=State.DELIVERED)
    JobFactory.create(consumer=hidden, state=State.DEAD)
    page = read_dashboard(operator, consumer=hidden.pk)
    assert f'<option value="{hidden.pk}" selected>zoo / keeper</option>' in page
    assert settled_counts(page) == {("0", "1")}


def test_capped_counts_are_marked_in_problems(
    operator: Client, hidden: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "CAPS", (2,))
    monkeypatch.setattr(dead, "COUNTED", 2)
    monkeypatch.setattr(consumer_status, "DEAD_ROWS", 2)
    JobFactory.create_batch(3, consumer=hidden, state=State.DEAD)
    assert "2+ jobs are dead." in visible_text(read_dashboard(operator))


def test_consumers_share_the_limit_of_dead_jobs_that_are_read(
    operator: Client, hidden: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "ROWS", 2)
    JobFactory.create_batch(3, consumer=hidden, state=State.DEAD)
    JobFactory.create_batch(3, consumer=ConsumerFactory.create(channel__name="c"), state=State.DEAD)
    text = visible_text(read_dashboard(operator))
    assert "1 bad zoo / keeper" in text
    assert "Of the newest 2 dead jobs" in text


def test_only_the_worst_of_many_problems_are_shown(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SHOWN", 2)
    channel = ChannelFactory.create(name="orders")
    JobFactory.create(consumer=ConsumerFactory.create(), state=State.DEAD)
    for _ in range(3):
        published(ConsumerFactory.create(channel=channel))
    text = visible_text(read_dashboard(operator))
    assert text.count("wait and no process serves it.") == 2
    assert "1 job is dead." not in text
    assert "more are not shown." in text
