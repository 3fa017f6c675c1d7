"""Lists and pages of the admin render, read few rows and hide secrets."""

import re
import time
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.html import escape

from pulljobs import auditing, ids, operating
from pulljobs.admin import formats
from pulljobs.engine import outcomes
from pulljobs.models import (
    ArchivedJob,
    Attempt,
    AuditEntry,
    Consumer,
    Job,
    Lease,
    Message,
    Producer,
)
from pulljobs.states import LIVE, State
from pulljobs.storage import jobs, leases
from tests.admin.conftest import browser_of
from tests.admin.pages import LISTS, listing, page, read_page, rows
from tests.factories import USING, ConsumerFactory, JobFactory, TimedRun, claimed, published

QUERIES = [
    {},
    {"state": "QUEUED"},
    {"state": "INFLIGHT"},
    {"state": "DEAD"},
    {"state": "DELIVERED"},
    {"state": "nonsense"},
    {"reason": "rejected"},
    {"channel": "1"},
    {"consumer": "x"},
    {"q": "42"},
    {"q": "no such"},
    {"id__lt": "1"},
]


def queries(client: Client, url: str, query: dict[str, Any]) -> list[str]:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        read_page(client, url, **query)
    return [query["sql"] for query in captured]


@pytest.mark.parametrize("model", LISTS)
def test_empty_lists_render(model: str, operator: Client) -> None:
    assert "Traceback" not in read_page(operator, listing(model))


@pytest.mark.parametrize(
    ("model", "query"),
    [*product(["job", "archivedjob"], QUERIES), ("archivedjob", {"age": "7d"})],
    ids=str,
)
def test_lists_neither_count_nor_group(
    model: str, query: dict[str, str], operator: Client, consumer: Consumer
) -> None:
    """Statements on jobs and archive have a limit or ids, and no COUNT, DISTINCT or OFFSET."""
    for state in State:
        JobFactory.create(state=state, consumer=consumer)
    tables = re.compile(r"pulljobs_(job|archived_job)\b")
    for sql in queries(operator, listing(model), query):
        if tables.search(sql):
            assert not re.search(r"\b(COUNT|DISTINCT|OFFSET|MIN|MAX)\b", sql), sql
            assert re.search(r"LIMIT \d+|\.\"(job_)?id\" IN \(\d", sql), sql


@pytest.mark.parametrize("model", ["job", "archivedjob"])
def test_a_list_of_100_rows_needs_as_many_queries_as_one_of_5(
    model: str, operator: Client, consumer: Consumer
) -> None:
    def add(count: int) -> None:
        for number in range(count):
            other = ConsumerFactory.create() if number % 10 == 0 else consumer
            JobFactory.create(state=State.DEAD, consumer=other)

    add(5)
    read_page(operator, listing(model))
    few = queries(operator, listing(model), {})
    add(95)
    many = queries(operator, listing(model), {})
    assert len(rows(read_page(operator, listing(model)))) == 100
    assert len(many) == len(few)


@pytest.mark.parametrize("model", ["channel", "consumer"])
def test_a_list_of_12_registry_rows_needs_as_many_queries_as_one_of_2(
    model: str, operator: Client
) -> None:
    ConsumerFactory.create_batch(2)
    read_page(operator, listing(model))
    few = queries(operator, listing(model), {})
    ConsumerFactory.create_batch(10)
    many = queries(operator, listing(model), {})
    assert len(rows(read_page(operator, listing(model)))) == 12
    assert len(many) == len(few)


@pytest.mark.parametrize("model", ["job", "archivedjob"])
def test_pages_show_every_row_once(model: str, operator: Client, consumer: Consumer) -> None:
    """Links from the newest page to the oldest show every row once and keep the filters."""
    made = [JobFactory.create(state=State.DEAD, consumer=consumer).id for _ in range(205)]
    url, seen, pages = listing(model) + "?state=DEAD", [], 0
    while url:
        text = read_page(operator, url)
        seen += [row.split()[0] for row in rows(text)]
        older = re.search(r'<a href="(\?[^"]*)">Older', text)
        url = listing(model) + older[1].replace("&amp;", "&") if older else ""
        assert not url or "state=DEAD" in url
        pages += 1
    assert (pages, seen) == (3, [ids.encode(id) for id in reversed(made)])
    assert ">Newest</a>" in text


@pytest.mark.parametrize("model", ["job", "archivedjob", "auditentry"])
def test_another_filter_or_search_begins_at_the_newest(
    model: str, operator: Client, consumer: Consumer
) -> None:
    """Links and forms of filters and searches drop the list's position, which hides newer rows."""
    for _ in range(3):
        job = JobFactory.create(state=State.DEAD, consumer=consumer)
        auditing.note("kill", by="olga", subject=str(job.id))
    rows_of: Any = {"job": Job, "archivedjob": ArchivedJob, "auditentry": AuditEntry}[model]
    newest = max(rows_of.objects.values_list("pk", flat=True))
    query = {"act__exact": "kill"} if model == "auditentry" else {"state": "DEAD", "key": ""}
    text = read_page(operator, listing(model), id__lt=newest, **query)
    assert len(rows(text)) == 2
    assert ">Newest</a>" in text
    assert "id__lt=" not in text
    assert 'name="id__lt"' not in text


@pytest.mark.parametrize("state", sorted(State))
def test_filters_show_only_matching_jobs(
    state: State, operator: Client, consumer: Consumer
) -> None:
    for each in State:
        JobFactory.create(state=each, consumer=consumer)
        JobFactory.create(state=each)
    text = read_page(operator, listing("job"), state=state.value, consumer=consumer.pk)
    [row] = rows(text)
    assert state in re.split(r"[ ,]+", row)
    assert "files / census" in row
    assert len(rows(read_page(operator, listing("job"), channel=consumer.channel_id))) == 4


@pytest.mark.parametrize("model", ["job", "archivedjob"])
@pytest.mark.parametrize(
    "term", ["job number", "job xid", "message number", "message xid", "client id"]
)
def test_a_job_is_found_by_every_id(
    term: str, model: str, operator: Client, consumer: Consumer
) -> None:
    """A search finds a job by the number or xid of job or message, and by client message id."""
    JobFactory.create(state=State.DEAD, consumer=consumer)
    [job_id] = published(consumer, message_id="order 17", payload=b"x")
    read_page(operator, listing("job"))
    job = Job.objects.get(id=job_id)
    assert operating.kill([job_id], by="a test").done
    terms = {
        "job number": str(job.id),
        "job xid": ids.encode(job.id),
        "message number": str(job.message_id),
        "message xid": ids.encode(job.message_id).upper(),
        "client id": " order 17 ",
    }
    [row] = rows(read_page(operator, listing(model), q=terms[term]))
    assert ids.encode(job_id) in row


@pytest.mark.parametrize("term", ["9" * 18, "9" * 19, "9" * 30, "x" * 20, "%", "\x00", "ü"])
def test_a_search_without_a_match_shows_no_job(
    term: str, operator: Client, consumer: Consumer
) -> None:
    JobFactory.create(consumer=consumer)
    assert not rows(read_page(operator, listing("job"), q=term)) or "\x00" in term


@pytest.mark.parametrize(
    "filtered",
    ["auditentry/?act__exact", "node/?kind__exact", "consumer/?type__exact", "limitgroup/?name"],
)
def test_a_filter_with_nul_leads_to_the_whole_list(filtered: str, operator: Client) -> None:
    answer = operator.get(f"/admin/pulljobs/{filtered}=a%00")
    assert (answer.status_code, answer.headers["Location"].endswith("?e=1")) == (302, True)
    assert operator.get(answer.headers["Location"]).status_code == 200


@pytest.mark.parametrize(
    "query", ["error__contains=x", "consumer__name=x", "available_at__gt=2020-01-01", "id__lt=x"]
)
def test_lookups_without_an_index_are_refused(
    query: str, operator: Client, consumer: Consumer
) -> None:
    assert operator.get(f"{listing('archivedjob')}?{query}").status_code in (302, 400)


@pytest.mark.parametrize("state", sorted(LIVE))
def test_the_page_of_a_job_escapes_its_payload_and_hides_its_lease_token(
    state: State, operator: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(state=state, consumer=consumer, payload="<b>Grüße</b>")
    text = read_page(operator, page("job", job.id))
    assert ids.encode(job.id) in text
    assert "&lt;b&gt;Grüße&lt;/b&gt;" in text
    assert "<b>Grüße</b>" not in text
    assert str(job.held.lease_token) not in text
    assert 'name="_save"' not in text


def test_each_job_of_a_claim_shows_its_own_lease(operator: Client, consumer: Consumer) -> None:
    """A job that was renewed without the other jobs of its claim shows its own end of the lease."""
    published(consumer, 3)
    held = claimed(consumer, 3)
    leases.renew(USING, held[1:2], timedelta(minutes=10))
    for job in held:
        lease = Lease.objects.get(job_ids__contains=[job.job_id])
        text = read_page(operator, page("job", job.job_id))
        assert f", until {formats.format_time(lease.leased_until)}" in text
        assert text.count("pulljobs-moment-claimed") == 1
        assert ("pulljobs-moment-renewed" in text) == (job == held[1])


def test_the_page_of_a_dead_job_shows_its_error_and_links_its_settlement(
    operator: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(state=State.DEAD, consumer=consumer)
    text = read_page(operator, page("job", job.id))
    archived = ArchivedJob.objects.get(job_id=job.id)
    assert '<pre class="pulljobs" tabindex="0">bad</pre>' in text
    assert page("archivedjob", archived.pk) in text


@pytest.mark.parametrize("state", [State.DEAD, State.DELIVERED])
def test_the_page_of_a_settlement_links_the_job_if_it_is_still_there(
    state: State, operator: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(state=state, consumer=consumer)
    archived = ArchivedJob.objects.get(job_id=job.id)
    text = read_page(operator, page("archivedjob", archived.pk))
    assert ids.encode(job.id) in text
    assert (page("job", job.id) in text) == (state == State.DEAD)


def test_pages_show_when_a_run_began_and_how_long_it_took(
    operator: Client, consumer: Consumer
) -> None:
    """The page of a live job shows its last run, and the timelines show every run once."""
    [job_id] = published(consumer, payload="x")
    live, now = page("job", job_id), time.monotonic()
    assert field_text(read_page(operator, live), "last_run") == formats.NOTHING
    for ago, seconds in ((3600, 0.25), (1800, 2.5)):
        [held] = claimed(consumer)
        leases.renew(USING, [held])
        failed = outcomes.retry(held, "x", after=timedelta(0))
        jobs.finish(USING, [failed._replace(run=TimedRun(now - ago, seconds))])
    began = Attempt.objects.order_by("id")[1].started_at
    text = read_page(operator, live)
    assert field_text(text, "last_run") == f"{formats.format_time(began)}, for 2.5 s"
    assert runs_in_timeline(text) == ["ran for 250 ms", "ran for 2.5 s"]
    [held] = claimed(consumer)
    leases.renew(USING, [held])
    jobs.finish(USING, [outcomes.deliver(held, run=TimedRun(now, 0.001))])
    text = read_page(operator, page("archivedjob", ArchivedJob.objects.get().pk))
    assert field_text(text, "run_time") == "1 ms"
    assert runs_in_timeline(text) == ["ran for 250 ms", "ran for 2.5 s", "ran for 1 ms"]


def test_a_result_needs_the_permission_to_see_payloads(consumer: Consumer) -> None:
    published(consumer)
    [held] = claimed(consumer)
    jobs.finish(USING, [outcomes.deliver(held, '"s3cr3t"')])
    user = User.objects.create_user("sam", is_staff=True)
    url = page("archivedjob", ArchivedJob.objects.get().pk)
    for name, is_shown in ("view_archivedjob", False), ("view_message", True):
        user.user_permissions.add(Permission.objects.get(codename=name))
        assert ("s3cr3t" in read_page(browser_of(user), url)) == is_shown


def field_text(text: str, name: str) -> str:
    """Return the text of a read-only field of a page."""
    [shown] = re.findall(rf'field-{name}.*?<div class="readonly">(.*?)</div>', text, re.DOTALL)
    return str(shown)


def runs_in_timeline(text: str) -> list[str]:
    return re.findall(r'<strong>started</strong> <span class="quiet">(.*?)</span>', text)


@pytest.mark.owner
def test_the_page_of_a_settlement_shows_seconds(operator: Client, consumer: Consumer) -> None:
    """Times are shown to the second, because times in minutes are equal for most jobs."""
    job = JobFactory.create(consumer=consumer, state=State.DEAD)
    [archived] = ArchivedJob.objects.filter(job_id=job.id)
    ArchivedJob.objects.filter(pk=archived.pk).update(
        created_at=archived.settled_at - timedelta(seconds=3),
        claimed_at=archived.settled_at - timedelta(seconds=2),
        started_at=archived.settled_at - timedelta(seconds=1),
    )
    text = read_page(operator, page("archivedjob", archived.pk))
    for seconds, name in enumerate(("settled", "started", "claimed", "created")):
        at = archived.settled_at - timedelta(seconds=seconds)
        assert field_text(text, name) == formats.format_time(at)


def test_a_run_that_goes_on_has_a_begin_only(operator: Client, consumer: Consumer) -> None:
    """A job that was settled before its handler ended has no run time."""
    published(consumer)
    [held] = claimed(consumer)
    jobs.finish(USING, [outcomes.deliver(held, run=TimedRun(time.monotonic(), None))])
    text = read_page(operator, page("archivedjob", ArchivedJob.objects.get().pk))
    assert field_text(text, "run_time") == formats.NOTHING
    assert runs_in_timeline(text) == [""]


@pytest.mark.parametrize(
    ("payload", "shown", "cut"),
    [
        (b"", 'aria-label="Payload"></pre>', False),
        (b"\xff\x00a<", "00000000  ff 00 61 3c", False),
        (b"\xff" * 513, "000001f0  " + "ff " * 15 + "ff", True),
        (b"a" + "ü".encode() * 40_000, "aü", True),
        (b"a" * 65_536, "a" * 65_536, False),
        (b"a" * 65_535 + b"\xc3", "61 61", True),
        (b"a\x00b", "61 00 62", False),
    ],
    ids=["empty", "binary", "long binary", "cut in a letter", "just fits", "half a letter", "NUL"],
)
def test_payloads_are_shown_escaped_and_cut_or_as_hex(
    payload: bytes, shown: str, cut: bool, operator: Client, consumer: Consumer
) -> None:
    """Text is shown up to a limit, other payloads as the first bytes in hex."""
    job = JobFactory.create(consumer=consumer, payload=payload)
    text = read_page(operator, page("job", job.id))
    assert shown in text
    assert ("only the beginning is shown" in text) == cut


@pytest.mark.parametrize("model", ["job", "archivedjob"])
def test_payloads_and_headers_need_a_permission_of_their_own(
    model: str, consumer: Consumer
) -> None:
    """Without the permission view_message, a page shows history and size, and reads no payload."""
    [job_id] = published(consumer, payload="s3cr3t", headers={"from": "m4sked"})
    assert operating.kill([job_id], by="a test").done
    message, archived = Message.objects.get(), ArchivedJob.objects.get()
    url = page(model, job_id if model == "job" else archived.pk)
    payload = reverse("admin:pulljobs_job_payload", args=[message.pk])
    stranger, trusted = (
        browser_of(_user(name, f"view_{model}", *more))
        for name, more in (("sam", []), ("tina", ["view_message"]))
    )
    with CaptureQueriesContext(connection) as captured:
        text = read_page(stranger, url)
    for shown in (ids.encode(message.pk), "pulljobs-timeline", "6\xa0bytes", message.content_type):
        assert shown in text
    assert "take the permission pulljobs.view_message: ask for it." in text
    assert not any(hidden in text for hidden in ("s3cr3t", "m4sked", payload))
    assert not any("substring" in query["sql"].lower() for query in captured)
    assert stranger.get(payload).status_code == 403
    text = read_page(trusted, url)
    assert "s3cr3t" in text
    assert "from: m4sked" in text
    assert "ask for it" not in text
    assert trusted.get(payload).content == b"s3cr3t"


@pytest.mark.parametrize("name", ["items", "0", "<b>"])
def test_a_header_may_have_any_name(name: str, operator: Client, consumer: Consumer) -> None:
    [job_id] = published(consumer, headers={name: "3"})
    assert f"{escape(name)}: 3" in read_page(operator, page("job", job_id))


@pytest.mark.parametrize("separated", [False, True])
def test_ids_have_no_separators_of_thousands(
    separated: bool, operator: Client, consumer: Consumer
) -> None:
    """Ids can be copied and links lead to their rows, even in a locale that groups digits."""
    other = ConsumerFactory.create(pk=12_345, channel=consumer.channel)
    [job_id] = published(other)
    with override_settings(USE_THOUSAND_SEPARATOR=separated, LANGUAGE_CODE="de"):
        shown = field_text(read_page(operator, page("job", job_id)), "number")
        text = read_page(operator, page("consumer", 12_345))
        listed = read_page(operator, listing("job"), consumer=12_345)
    assert shown == str(job_id)
    assert "12.345" not in text
    assert f"{listing('job')}?consumer=12345&amp;state=QUEUED" in text
    assert ids.encode(job_id) in rows(listed)[0]


@pytest.mark.parametrize(
    ("static", "sources"),
    [
        ("static/", "'self'"),
        ("https://static.example/of/", "'self' https://static.example"),
        ("//static.example/", "'self' static.example"),
    ],
)
def test_the_policy_of_a_page_allows_static_files_from_their_host(
    static: str, sources: str, operator: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(consumer=consumer)
    with override_settings(STATIC_URL=static):
        policy = operator.get(page("job", job.id))["Content-Security-Policy"]
    assert policy.startswith(f"default-src {sources}; img-src {sources} data:; object-src 'none'")


@pytest.mark.owner
def test_the_page_of_a_job_says_if_its_message_is_gone(
    operator: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(consumer=consumer)
    Message.objects.all().delete()
    assert "no longer stored" in read_page(operator, page("job", job.id))


def test_at_most_20_settlements_are_shown(operator: Client, consumer: Consumer) -> None:
    job = JobFactory.create(state=State.DEAD, consumer=consumer)
    first = ArchivedJob.objects.get(job_id=job.id)
    for day in range(1, 25):
        first.pk, first.settled_at = None, first.settled_at + timedelta(days=day)
        ArchivedJob.objects.bulk_create([ArchivedJob(**_columns(first))])
    text = read_page(operator, page("job", job.id))
    assert len(re.findall(r"/archivedjob/\d+/change/", text)) == 20


def test_the_page_of_an_unknown_job_redirects(operator: Client, consumer: Consumer) -> None:
    for url in (page("job", 17), page("job", "x"), page("archivedjob", 17)):
        assert operator.get(url).status_code == 302


def test_the_page_of_a_consumer_has_live_counts(operator: Client, consumer: Consumer) -> None:
    for state, count in ((State.QUEUED, 3), (State.INFLIGHT, 2), (State.DEAD, 1)):
        for _ in range(count):
            JobFactory.create(state=state, consumer=consumer)
    published(consumer, delay=timedelta(hours=1))
    text = read_page(operator, page("consumer", consumer.pk))
    figures = re.findall(r"<dd>(?:<a[^>]*>)?(\d+)(?:</a>)?</dd>", text)
    assert figures == ["3", "1", "2", "1"]


@pytest.mark.parametrize("model", LISTS)
def test_a_reader_sees_every_page_and_can_change_nothing(
    model: str, reader: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(state=State.DEAD, consumer=consumer)
    Producer.objects.create(name="scanner")
    pks = {
        "job": job.id,
        "archivedjob": ArchivedJob.objects.get().pk,
        "channel": consumer.channel_id,
        "producer": Producer.objects.get().pk,
        "consumer": consumer.pk,
    }
    assert rows(read_page(reader, listing(model)))
    assert 'type="submit" value="Save"' not in read_page(reader, page(model, pks[model]))
    assert reader.post(page(model, pks[model]), {"name": "x"}).status_code == 403
    delete = reverse(f"admin:pulljobs_{model}_delete", args=[pks[model]])
    assert reader.post(delete, {"post": "yes"}).status_code == 403


@pytest.mark.parametrize("model", ["job", "archivedjob"])
def test_jobs_and_settlements_cannot_be_added_or_deleted_as_rows(
    model: str, operator: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(state=State.DEAD, consumer=consumer)
    pk = job.id if model == "job" else ArchivedJob.objects.get().pk
    assert operator.get(reverse(f"admin:pulljobs_{model}_add")).status_code == 403
    delete = reverse(f"admin:pulljobs_{model}_delete", args=[pk])
    assert operator.post(delete, {"post": "yes"}).status_code == 403
    assert "deletelink" not in read_page(operator, page(model, pk))


def _user(name: str, *permissions: str) -> User:
    user = User.objects.create_user(name, is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    return user


def _columns(row: ArchivedJob) -> dict[str, Any]:
    left_to_the_database = {"id", "settled_xid"}
    return {
        field.attname: getattr(row, field.attname)
        for field in ArchivedJob._meta.concrete_fields
        if field.name not in left_to_the_database
    }
