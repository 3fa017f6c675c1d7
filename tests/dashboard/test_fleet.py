"""The table shows the first consumers by name: what is said of all is of the others, too."""

import re
from datetime import timedelta

import pytest
from django.test import Client

from pulljobs.admin.dashboard import attention, consumers, failures, workers
from pulljobs.models import Consumer
from pulljobs.states import State
from pulljobs.storage import backlog
from tests.dashboard.test_page import heard_of, read, tile, words
from tests.factories import ChannelFactory, ConsumerFactory, JobFactory, published

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def last(monkeypatch: pytest.MonkeyPatch) -> Consumer:
    """Of three, of which one is shown."""
    monkeypatch.setattr(consumers, "SHOWN", 1)
    for name in ("a", "b"):
        ConsumerFactory.create(channel__name=name)
    return ConsumerFactory.create(channel__name="zoo", name="keeper")


def test_sums_and_findings_are_of_all(operator: Client, last: Consumer) -> None:
    published(last, 4)
    published(last, 5, delay=timedelta(hours=1))
    JobFactory.create(consumer=last, state=State.INFLIGHT)
    JobFactory.create_batch(2, consumer=last, state=State.DEAD)
    page = read(operator)
    titles = ("Ready", "Due later", "In flight", "Dead")
    assert [tile(page, title).split()[0] for title in titles] == ["4", "5", "1", "2"]
    told = words(page)
    assert "2 jobs are dead." in told
    assert "2 bad zoo / keeper" in told
    assert "No job is dead." not in told
    assert "2 more are not shown." in told


def test_a_consumer_that_is_not_shown_is_missed_when_nobody_serves_it(
    operator: Client, last: Consumer
) -> None:
    published(last)
    assert "Jobs of zoo/keeper wait and no process serves it." in words(read(operator))


def test_whoever_serves_it_is_known_however_many_workers_there_are(
    operator: Client, last: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "SHOWN", 1)
    published(last)
    heard_of({"serves": ["zoo/keeper"]})
    for _ in range(2):
        heard_of({"serves": ["a/other"]})
    page = read(operator)
    assert "not served" not in words(page)
    assert "3 healthy workers" in tile(page, "In flight")
    assert words(page).count("host:1") == 1


def test_charts_of_any_can_be_chosen(operator: Client, last: Consumer) -> None:
    JobFactory.create(consumer=ConsumerFactory.create(channel__name="b2"), state=State.DELIVERED)
    JobFactory.create(consumer=last, state=State.DEAD)
    page = read(operator, consumer=last.pk)
    assert f'<option value="{last.pk}" selected>zoo / keeper</option>' in page
    told = re.findall(r"<title>[^<]*: (\d+) delivered, (\d+) dead", page)
    assert {one for one in told if one != ("0", "0")} == {("0", "1")}


def test_counts_that_were_cut_off_are_marked_in_findings(
    operator: Client, last: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog, "CAPS", (2,))
    JobFactory.create_batch(3, consumer=last, state=State.DEAD)
    assert "2+ jobs are dead." in words(read(operator))


def test_dead_jobs_of_many_consumers_are_fewer_of_each(
    operator: Client, last: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "ROWS", 2)
    JobFactory.create_batch(3, consumer=last, state=State.DEAD)
    JobFactory.create_batch(3, consumer=ConsumerFactory.create(channel__name="c"), state=State.DEAD)
    told = words(read(operator))
    assert "1 bad zoo / keeper" in told
    assert "Of the newest 2 dead jobs" in told


def test_of_many_findings_the_worst_are_shown(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "SHOWN", 2)
    channel = ChannelFactory.create(name="orders")
    JobFactory.create(consumer=ConsumerFactory.create(), state=State.DEAD)
    for _ in range(3):
        published(ConsumerFactory.create(channel=channel))
    told = words(read(operator))
    assert told.count("wait and no process serves it.") == 2
    assert "1 job is dead." not in told
    assert "more are not shown." in told
