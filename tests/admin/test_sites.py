"""Pages link only to pages of their own site, and only to those that the user may see."""

import html
import re
from collections import Counter
from typing import Final
from uuid import uuid4

import pytest
from django.contrib.admin import AdminSite, site
from django.contrib.auth.models import Permission, User
from django.test import Client
from django.urls import path

from pulljobs import auditing, batches, operating
from pulljobs.models import (
    Consumer,
    HttpClient,
    Job,
    LimitGroup,
    Node,
    Producer,
    ScheduledMessage,
)
from pulljobs.schedules import acting as schedules
from pulljobs.schedules.models import Schedule
from pulljobs.states import Event, State
from pulljobs.storage import nodes
from pulljobs.workflows.models import Batch
from tests.admin.conftest import browser_of
from tests.factories import USING, ChannelFactory, ConsumerFactory, JobFactory, published

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.urls(__name__)]

INDEX: Final = "/office/"
SHAPES: Final = 3
"""Number of pages of one kind that the crawl opens."""
office, bare = AdminSite("office"), AdminSite("admin")
for model, registered in site._registry.items():
    office.register(model, type(registered))
bare.register(User)
OURS: Final = [model for model in site._registry if model._meta.app_label.startswith("pulljobs")]
urlpatterns = [path("office/", office.urls), path("admin/", bare.urls)]
for model in OURS:
    alone = AdminSite(f"only-{model._meta.model_name}")
    alone.register(model, type(site._registry[model]))
    urlpatterns.append(path(f"only/{model._meta.model_name}/", alone.urls))


@pytest.fixture
def consumer(db: None) -> Consumer:
    operating.maintain()
    channel = ChannelFactory.create(name="files")
    return ConsumerFactory.create(name="census", channel=channel)


def crawl(client: Client, index: str = INDEX) -> dict[str, int]:
    """Follow links from the index of a site. Return the pages with their status."""
    pages: dict[str, int] = {}
    kinds: Counter[str] = Counter()
    left = [index]
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
    [job] = published(consumer, key="a")
    auditing.act(Event.RESCHEDULE, [job, 17], by="olga")
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
    ScheduledMessage.objects.create(
        channel=consumer.channel,
        producer=Producer.objects.create(name="scanner"),
        client_message_id="later",
        payload=b"",
        dispatch_at=now,
    )
    schedules.create("nightly", "files", cron="0 3 * * *", payload={}, by="olga")


def test_every_link_leads_to_the_same_site(operator: Client, rows: None) -> None:
    pages = crawl(operator)
    assert failures(pages) == {}
    assert [url for url in pages if not url.startswith(INDEX)] == []
    visited = " ".join(pages)
    for page in ("job", "archivedjob", "consumer", "limitgroup", "node", "httpclient", "dashboard"):
        assert re.search(rf"/pulljobs/{page}/[\w-]", visited) or page == "dashboard", page
    for page in ("pulljobs_workflows/batch", "pulljobs_schedules/schedule"):
        assert re.search(rf"/{page}/\d+/change", visited), page


def failures(pages: dict[str, int]) -> dict[str, int]:
    return {url: status for url, status in pages.items() if status not in (200, 302)}


def test_no_link_leads_to_a_page_that_the_user_may_not_see(rows: None) -> None:
    """A user who may view the rows of one model alone finds no link to those of another."""
    refused: dict[tuple[str, str], int] = {}
    for model in OURS:
        name = f"view_{model._meta.model_name}"
        user = User.objects.create_user(name, is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename=name))
        pages = crawl(browser_of(user))
        assert any(f"/{model._meta.model_name}/" in url for url in pages), pages
        refused |= {(name, url): status for url, status in failures(pages).items()}
    assert refused == {}


def test_a_site_may_have_the_pages_of_one_model_alone(operator: Client, rows: None) -> None:
    failed: dict[str, int] = {}
    for model in OURS:
        index = f"/only/{model._meta.model_name}/"
        pages = crawl(operator, index)
        assert len(pages) > 2, pages
        failed |= failures(pages)
        failed |= {url: 0 for url in pages if not url.startswith(index)}
    assert failed == {}


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
