"""The pages work in an admin site of another name, next to a site that lacks them."""

import html
import re
from collections import Counter
from typing import Final
from uuid import uuid4

import pytest
from django.contrib.admin import AdminSite, site
from django.contrib.auth.models import User
from django.test import Client
from django.urls import path

from pulljobs import batches, operating
from pulljobs.models import Consumer, HttpClient, Job, LimitGroup, Node
from pulljobs.schedules import acting as schedules
from pulljobs.schedules.models import Schedule
from pulljobs.states import State
from pulljobs.storage import nodes
from pulljobs.workflows.models import Batch
from tests.factories import USING, ChannelFactory, ConsumerFactory, JobFactory, published

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

INDEX: Final = "/office/"
SHAPES: Final = 3
"""Number of pages of one kind that the crawl opens."""
office, bare = AdminSite("office"), AdminSite("admin")
for model, registered in site._registry.items():
    office.register(model, type(registered))
bare.register(User)
urlpatterns = [path("office/", office.urls), path("admin/", bare.urls)]


@pytest.fixture
def consumer(db: None) -> Consumer:
    operating.maintain()
    channel = ChannelFactory.create(name="files")
    return ConsumerFactory.create(name="census", channel=channel)


def crawl(client: Client) -> dict[str, int]:
    """Follow links from the index of the site. Return the pages with their status."""
    pages: dict[str, int] = {}
    kinds: Counter[str] = Counter()
    left = [INDEX]
    while left:
        url = left.pop()
        kind = re.sub(r"\d+|=[^&]*|[0-9a-f-]{36}", "", url)
        kinds[kind] += 1
        if url in pages or kinds[kind] > SHAPES or "logout" in url:
            continue
        answer = client.get(url)
        pages[url] = answer.status_code
        if answer.status_code == 200 and not answer.streaming:
            links = re.findall(
                r'<(?:a|form)\b[^>]* (?:href|action)="(/[^"#]*)', answer.content.decode()
            )
            left += [html.unescape(link) for link in links if link != "/"]
    return pages


@pytest.fixture
def rows(consumer: Consumer) -> None:
    """Make a row of each kind that has links to others."""
    dead = JobFactory.create(consumer=consumer, state=State.DEAD)
    JobFactory.create(consumer=consumer, state=State.DELIVERED)
    published(consumer, key="a")
    group = LimitGroup.objects.create(name="shared", max_in_flight=100)
    ConsumerFactory.create(name="limited", limit_group=group)
    now = nodes.clock(USING)
    run = {"job": dead.id, "consumer": "files/census", "slot": 0, "seconds": 1.0, "ended": None}
    report = {"running": [run]}
    Node.objects.create(id=uuid4(), name="n", report=report, started_at=now, heartbeat_at=now)
    HttpClient.objects.create(
        consumer=consumer, name="c", address="::1", first_seen_at=now, seen_at=now
    )
    with batches.batch("all") as batch:
        batch.publish_many("files", [{}])
        with batch.batch("part") as part:
            part.publish_many("files", [{}])
    schedules.create("nightly", "files", cron="0 3 * * *", payload={}, by="olga")


def test_every_link_leads_to_the_same_site(operator: Client, rows: None) -> None:
    pages = crawl(operator)
    assert {url: status for url, status in pages.items() if status not in (200, 302)} == {}
    assert [url for url in pages if not url.startswith(INDEX)] == []
    visited = " ".join(pages)
    for page in ("job", "archivedjob", "consumer", "limitgroup", "node", "httpclient", "dashboard"):
        assert re.search(rf"/pulljobs/{page}/[\w-]", visited) or page == "dashboard", page
    for page in ("pulljobs_workflows/batch", "pulljobs_schedules/schedule"):
        assert re.search(rf"/{page}/\d+/change", visited), page


def test_an_action_leads_back_to_the_same_site(operator: Client, rows: None) -> None:
    schedule, batch = Schedule.objects.get().pk, Batch.objects.latest("pk").pk
    consumer, job = Consumer.objects.get(name="census").pk, Job.objects.get(state=State.DEAD).pk
    redriven = {"action": "reschedule", "_selected_action": [job]}
    for url, form in [
        (f"pulljobs_schedules/schedule/{schedule}/pause/", {"span": "1h"}),
        (f"pulljobs_workflows/batch/{batch}/cancel/", {}),
        (f"pulljobs/consumer/{consumer}/pause/", {"span": "1h"}),
        ("pulljobs/job/", redriven),
        ("pulljobs/job/all/redrive/?state=DEAD", {}),
        (f"pulljobs/job/all/kill/?chosen={job}", {}),
        (f"pulljobs/job/{job}/change/", {"_event": "delete"}),
    ]:
        answer = operator.post(INDEX + url, form)
        assert (url, answer.status_code, answer["Location"][:8]) == (url, 302, INDEX)
