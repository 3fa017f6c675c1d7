"""Lists show live and archived jobs together, say what a job is, and find texts in a range."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.admin import ModelAdmin, site
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client
from django.test.html import parse_html
from django.test.utils import CaptureQueriesContext

from pulljobs import ids, operating
from pulljobs.models import ArchivedJob, Consumer, Job, Message
from pulljobs.states import State
from pulljobs.storage import searching
from tests.admin.conftest import browser_of
from tests.admin.pages import listing, offered, page, read_page, rows
from tests.factories import JobFactory, claimed, published
from tests.sessions import PATIENCE_SECONDS

TASK = {"task": "shop.tasks.invoice", "args": [17, "Zoë"], "kwargs": {"copy": True}}
LATE = "a part of a payload that is searched"


def user_with(*permissions: str) -> Client:
    user = User.objects.create_user("sam", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return browser_of(user)


def xids(text: str) -> list[str]:
    """Return the xid of the job in each row of a list."""
    return re.findall(r'field-xid"><a href="[^"]*">([^<]+)</a>', text)


def older(text: str) -> str | None:
    """Return the query of the link to older rows, or None on the last page."""
    link = re.search(r'<a href="(\?[^"]*)">(?:Older|Look further back)', text)
    return link[1].replace("&amp;", "&") if link else None


def test_a_list_names_reasons_in_plain_words(operator: Client, consumer: Consumer) -> None:
    """The column of the state and the filter give the reason of a dead job in the same words."""
    job = JobFactory.create(state=State.DEAD, consumer=consumer)
    Job.objects.filter(pk=job.id).update(reason="retries_exhausted")
    text = read_page(operator, listing("job"), reason="retries_exhausted")
    assert ">DEAD, retries exhausted</span>" in text
    assert ">retries exhausted</a>" in text


def test_live_and_archived_jobs_are_in_one_list(operator: Client, consumer: Consumer) -> None:
    """Each job is listed once, in its present state. An archived job links to its settlement."""
    made = {state: JobFactory.create(state=state, consumer=consumer).id for state in State}
    text = read_page(operator, listing("job"))
    assert xids(text) == [ids.encode(id) for id in sorted(made.values(), reverse=True)]
    settled = ArchivedJob.objects.get(job_id=made[State.DELIVERED])
    assert f'href="{page("archivedjob", settled.pk)}"' in text
    assert f'href="{page("job", made[State.DEAD])}"' in text
    delivered = read_page(operator, listing("job"), state="DELIVERED")
    assert xids(delivered) == [ids.encode(made[State.DELIVERED])]


def test_a_redriven_job_is_listed_once_and_a_deleted_job_stays_listed(
    operator: Client, consumer: Consumer
) -> None:
    redriven = JobFactory.create(state=State.DEAD, consumer=consumer).id
    assert operating.redrive([redriven]).done
    deleted = JobFactory.create(state=State.DEAD, consumer=consumer).id
    assert operating.delete([deleted]).done
    text = read_page(operator, listing("job"))
    assert xids(text) == [ids.encode(deleted), ids.encode(redriven)]
    [last, first] = rows(text)
    assert ("DEAD" in last, "QUEUED" in first) == (True, True)
    assert not xids(read_page(operator, listing("job"), state="DEAD"))


def test_archived_jobs_have_no_checkbox(operator: Client, consumer: Consumer) -> None:
    dead = JobFactory.create(state=State.DEAD, consumer=consumer).id
    JobFactory.create(state=State.DELIVERED, consumer=consumer)
    text = read_page(operator, listing("job"))
    assert re.findall(r'name="_selected_action" value="(\d+)"', text) == [str(dead)]
    assert offered(read_page(operator, listing("job"), state="DELIVERED")) == set()


def test_the_checkbox_of_a_job_is_that_of_django(consumer: Consumer) -> None:
    """The list of jobs renders the same checkbox as Django's `ModelAdmin`."""
    listed, job = site.get_model_admin(Job), Job(id=JobFactory.create(consumer=consumer).id)
    expected = ModelAdmin.action_checkbox(listed, job)
    assert parse_html(listed.action_checkbox(job)) == parse_html(expected)


def test_users_who_may_not_see_the_archive_see_live_jobs_only(consumer: Consumer) -> None:
    live = JobFactory.create(state=State.DEAD, consumer=consumer).id
    done = JobFactory.create(state=State.DELIVERED, consumer=consumer).id
    stranger = user_with("view_job")
    assert xids(read_page(stranger, listing("job"))) == [ids.encode(live)]
    assert not xids(read_page(stranger, listing("job"), state="DELIVERED"))
    for term in (str(done), ids.encode(done), "payload"):
        assert ids.encode(done) not in xids(read_page(stranger, listing("job"), q=term))
    for term in (str(live), "payload"):
        assert not xids(read_page(stranger, listing("job"), q=term, state="DELIVERED"))


@pytest.mark.parametrize("settlements", [0, 1, 3])
def test_pages_of_live_and_archived_jobs_show_every_job_once(
    settlements: int, operator: Client, consumer: Consumer
) -> None:
    """Jobs at the edges of pages are shown once, even if they were settled several times."""
    made = published(consumer, 230)
    for turn in range(settlements):
        assert operating.kill(made[::2], by="a test").done
        is_last = turn == settlements - 1
        assert (operating.delete if is_last else operating.redrive)(made[::2]).done
    for filters in ({}, {"consumer": str(consumer.pk)}):
        seen, query = [], "?" + "&".join(f"{name}={value}" for name, value in filters.items())
        while query:
            text = read_page(operator, listing("job") + query)
            seen += xids(text)
            query = older(text) or ""
        assert seen == [ids.encode(id) for id in sorted(made, reverse=True)]


@pytest.mark.parametrize(
    ("payload", "options", "shown"),
    [
        (TASK, {}, "shop.tasks.invoice(17, &quot;Zoë&quot;, copy=true)"),
        (TASK | {"args": ["x" * 5_000], "kwargs": {}}, {}, "shop.tasks.invoice(&quot;xxxx"),
        (
            rb'{"task": "shop.tasks.\udfff", "args": ["\ud800"], "kwargs": {"\ud801": 1}}',
            {"content_type": "application/json"},
            r"shop.tasks.\udfff(&quot;\ud800&quot;, \ud801=1)",
        ),
        ({"path": "/a b"}, {}, "{&quot;path&quot;: &quot;/a b&quot;}"),
        (b"first line\nsecond line", {"content_type": "text/plain"}, ">first line<"),
        (b"<script>alert(1)</script>", {"content_type": "text/html"}, "&lt;script&gt;alert(1)"),
        (b"\xff\x00\x01", {"content_type": "image/x"}, ">image/x, 3\xa0bytes<"),
        (b"", {"content_type": "text/plain"}, ">text/plain, 0\xa0bytes<"),
        (b"a" * 2_047 + "ü".encode(), {"content_type": "text/plain"}, "aaaa"),
        ({"task": 3}, {"key": "<k>"}, "key &lt;k&gt;<"),
        (b"[" * 1_500, {"content_type": "application/json"}, "[[[["),
    ],
    ids=[
        "task",
        "long task",
        "half surrogate pairs",
        "JSON",
        "text",
        "HTML",
        "binary",
        "empty",
        "cut letter",
        "key",
        "deep",
    ],
)
def test_a_list_says_what_a_job_does(
    payload: object, options: dict[str, Any], shown: str, operator: Client, consumer: Consumer
) -> None:
    [job] = published(consumer, payload=payload, priority=0, **options)
    for model in ("job", "archivedjob"):
        text = read_page(operator, listing(model))
        assert shown in text.partition("<tbody>")[2]
        assert "<script>alert" not in text
        operating.kill([job], by="a test")


def test_a_summary_needs_the_permission_to_see_payloads(consumer: Consumer) -> None:
    published(consumer, payload={"token": "s3cr3t"}, key="customer 9")
    stranger = user_with("view_job")
    with CaptureQueriesContext(connection) as captured:
        [row] = rows(read_page(stranger, listing("job")))
    assert "application/json, 19\xa0bytes" in row.replace(" bytes", "\xa0bytes")
    assert "key customer 9" in row
    assert "s3cr3t" not in row
    assert not any("substring" in query["sql"].lower() for query in captured)


@pytest.mark.owner
def test_a_list_says_if_a_message_is_gone(operator: Client, consumer: Consumer) -> None:
    JobFactory.create(consumer=consumer)
    Message.objects.all().delete()
    assert "no longer stored" in rows(read_page(operator, listing("job")))[0]


def test_a_list_shows_age_and_attempts(operator: Client, consumer: Consumer) -> None:
    job = JobFactory.create(state=State.DEAD, consumer=consumer).id
    Job.objects.update(retry_count=2, deliveries=3)
    [row] = rows(read_page(operator, listing("job")))
    assert re.search(r"\b3 \(2 retries\)", row)
    assert re.search(r"\d s ago", row)
    assert ids.encode(job) in row


def test_a_list_shows_when_a_job_is_due_and_when_it_was_settled(
    operator: Client, consumer: Consumer
) -> None:
    published(consumer, delay=timedelta(hours=3))
    JobFactory.create(state=State.DELIVERED, consumer=consumer)
    published(consumer)
    ready, done, later = rows(read_page(operator, listing("job")))
    assert "due" not in ready
    assert re.search(r"settled \d{4}-", done)
    assert "due in 3 h" in later


@pytest.mark.parametrize("model", ["job", "archivedjob"])
@pytest.mark.parametrize(
    "term",
    ["shop.tasks.invoice", "Zoë", "customer", "ORDER", '"order 5"', "bad", "by a test", " Zoë "],
)
def test_a_text_is_found(term: str, model: str, operator: Client, consumer: Consumer) -> None:
    """A search finds text in task, arguments, key, client message id or error, and ignores case."""
    published(consumer, 2)
    [job] = published(consumer, payload=TASK, key="a customer", message_id="order 5")
    held = claimed(consumer, 3)
    assert held
    assert operating.kill([job], by="a test").done
    Job.objects.filter(id=job).update(error="it is bad: killed by a test")
    ArchivedJob.objects.filter(job_id=job).update(error="it is bad: killed by a test")
    assert xids(read_page(operator, listing(model), q=term)) == [ids.encode(job)]
    assert not xids(read_page(operator, listing(model), q="100%"))


def test_a_search_says_what_range_it_compared_and_goes_on(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The page names the range of jobs that it searched, and its link continues with older jobs."""
    monkeypatch.setattr(searching, "SLICE", 4)
    monkeypatch.setattr(searching, "ROWS", 8)
    monkeypatch.setattr(searching, "SECONDS", PATIENCE_SECONDS)
    [job] = published(consumer, payload=LATE)
    published(consumer, 20)
    query, shown, ranges = f"?q={LATE.partition(' ')[2]}", [], []
    while query:
        text = read_page(operator, listing("job") + query)
        ranges += re.findall(r"was looked for in (\d+) jobs of this list, back to (the|\d+)", text)
        shown += xids(text)
        query = older(text) or ""
    year = str(ids.time_of(job).year)
    assert shown == [ids.encode(job)]
    assert ranges == [("8", year), ("8", year), ("5", "the")]


def test_a_search_ends_when_its_time_is_over(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(searching, "SLICE", 2)
    monkeypatch.setattr(searching, "SECONDS", 0.0)
    published(consumer, 7)
    text = read_page(operator, listing("job"), q="nowhere")
    assert "was looked for in 2 jobs of this list" in text
    assert older(text)


def test_a_page_of_hits_is_full_and_the_next_continues_below_it(
    operator: Client, consumer: Consumer
) -> None:
    made = published(consumer, 130, payload="same")
    seen, query = [], "?q=same"
    while query:
        text = read_page(operator, listing("job") + query)
        seen.append(xids(text))
        query = older(text) or ""
    assert [len(page) for page in seen] == [100, 30]
    assert sum(seen, []) == [ids.encode(id) for id in sorted(made, reverse=True)]


def test_a_search_keeps_the_filters(operator: Client, consumer: Consumer) -> None:
    dead = JobFactory.create(state=State.DEAD, consumer=consumer).id
    JobFactory.create(consumer=consumer)
    text = read_page(operator, listing("job"), q="payload", state="DEAD")
    assert xids(text) == [ids.encode(dead)]
    assert "was looked for in 1 job of this list" in text


def test_payloads_are_searched_only_for_users_who_may_see_them(consumer: Consumer) -> None:
    """Users who may not see payloads can't search them, because a search reveals them in part."""
    published(consumer, payload={"token": "s3cr3t"}, message_id="order 5")
    stranger = user_with("view_job", "view_archivedjob")
    with CaptureQueriesContext(connection) as captured:
        text = read_page(stranger, listing("job"), q="s3cr3t")
    assert not xids(text)
    assert "To search payloads takes the permission pulljobs.view_message." in text
    assert not any("position" in query["sql"].lower() for query in captured)
    assert len(xids(read_page(stranger, listing("job"), q="rder 5"))) == 1


def test_an_id_is_found_first_and_its_text_on_request(operator: Client, consumer: Consumer) -> None:
    """A term that is an id finds only its job. A link leads to a search of texts."""
    [named] = published(consumer, message_id="order 5", payload=b"x")
    [other] = published(consumer, payload=b"see order 5")
    text = read_page(operator, listing("job"), q="order 5")
    assert xids(text) == [ids.encode(named)]
    link = re.search(r'<a href="([^"]+)">Search texts for it', text)
    assert link
    text = read_page(operator, listing("job") + link[1].replace("&amp;", "&"))
    assert xids(text) == [ids.encode(other), ids.encode(named)]


def test_all_jobs_of_a_text_search_cannot_be_changed_at_once(
    operator: Client, consumer: Consumer
) -> None:
    """A search of texts covers a range of jobs, so it offers no action on all matching jobs."""
    [job] = published(consumer, payload=b"findme", delay=timedelta(hours=1))
    for term, offers in (("findme", False), (f'"{job}"', False), (str(job), True)):
        text = read_page(operator, listing("job"), q=term)
        assert ("Kill all …" in text) == offers, term


@pytest.mark.parametrize("term", ['"', '""', '" "', "'", "%", "_", "\\", "<b>", "\x00", "é" * 300])
def test_odd_terms_find_nothing_and_break_nothing(
    term: str, operator: Client, consumer: Consumer
) -> None:
    JobFactory.create(consumer=consumer, payload=json.dumps({"a": 1}).replace('"', ""))
    for model in ("job", "archivedjob"):
        text = read_page(operator, listing(model), q=term)
        assert "<b>" not in text
