"""Acts on all jobs that a filter matches, their audit trail, and the page of a job."""

import json
import re
import time
from datetime import timedelta
from html import unescape

import pytest
from django.contrib.auth.models import Permission, User
from django.core import signing
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from pulljobs import auditing, ids
from pulljobs.models import AuditEntry, Consumer, Job
from pulljobs.states import Event, State
from pulljobs.storage.selecting import Selection
from tests.admin.conftest import browser_of
from tests.admin.pages import act, listing, page, post_form, preview_token, read_page, rows
from tests.factories import ConsumerFactory, JobFactory, published

PNG = b"\x89PNG\r\n\x1a\n and so on"


def all_url(action: str) -> str:
    return reverse("admin:pulljobs_job_all", args=[action])


def press_url(entry: AuditEntry, button: str) -> str:
    return reverse("admin:pulljobs_auditentry_press", args=[entry.pk, button])


def test_all_of_a_filter_is_previewed_then_redriven_and_nothing_else(
    operator: Client, consumer: Consumer
) -> None:
    mine = [JobFactory.create(consumer=consumer, state=State.DEAD).id for _ in range(3)]
    other = JobFactory.create(state=State.DEAD).id
    url = f"{all_url('redrive')}?state=DEAD&consumer={consumer.pk}"
    assert "3 jobs" in read_page(operator, url)
    assert Job.objects.filter(state=State.DEAD).count() == 4
    operator.post(url, {"preview_token": preview_token(operator, url)})
    assert list(Job.objects.filter(state=State.DEAD).values_list("id", flat=True)) == [other]
    [entry] = AuditEntry.objects.all()
    assert (entry.by, entry.subject) == ("olga", "state DEAD, consumer files/census")
    assert (entry.expected, entry.is_more, entry.done) == (3, False, 3)
    assert "finished" in rows(read_page(operator, listing("auditentry")))[0]
    text = read_page(operator, page("auditentry", entry.pk))
    assert all(ids.encode(id) in text for id in mine)


def test_the_page_of_an_action_lists_changed_jobs_of_a_batch_after_one_that_changed_none(
    operator: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "BATCH", 1)
    refused, done = sorted(JobFactory.create(state=State.DEAD).id for _ in range(2))
    Job.objects.filter(pk=refused).delete()
    entry = auditing.act(Event.REDRIVE, [refused, done], by="olga")
    assert (entry.done, entry.refused) == (1, 1)
    assert f"?q={ids.encode(done)}" in read_page(operator, page("auditentry", entry.pk))


def test_a_user_who_may_not_see_the_audit_trail_reads_the_result_on_the_list(
    consumer: Consumer,
) -> None:
    for _ in range(3):
        JobFactory.create(consumer=consumer, state=State.DEAD)
    user = User.objects.create_user("sam", is_staff=True)
    names = ["view_job", "redrive_job"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    sam, url = browser_of(user), f"{all_url('redrive')}?state=DEAD"
    token = {"preview_token": preview_token(sam, url)}
    assert post_form(sam, url, token) == ["Changed: 3. Not changed: 0."]
    assert not Job.objects.filter(state=State.DEAD).exists()


def test_jobs_change_only_with_a_recent_preview_of_this_act_for_this_user(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A preview is signed for the user, the act and the filter, and expires after a day."""
    for _ in range(2):
        JobFactory.create(consumer=consumer, state=State.DEAD)
    url = f"{all_url('redrive')}?state=DEAD"
    true = preview_token(operator, url)
    other = browser_of(User.objects.create_superuser("otto"))
    forged = [
        *("", "2", true[:-1], signing.dumps([9, False])),
        preview_token(other, url),
        preview_token(operator, f"{url}&channel=0"),
        preview_token(operator, f"{all_url('delete')}?state=DEAD"),
    ]
    before = list(Job.objects.values())
    for given in forged:
        assert post_form(operator, url, {"preview_token": given})[0].startswith(
            "Nothing was changed"
        )
    with monkeypatch.context() as patch:
        soon = time.time() + timedelta(days=1).total_seconds() + 60
        patch.setattr("django.core.signing.time.time", lambda: soon)
        assert post_form(operator, url, {"preview_token": true})[0].startswith(
            "Nothing was changed"
        )
    assert list(Job.objects.values()) == before
    assert not AuditEntry.objects.exists()
    operator.post(url, {"preview_token": true})
    assert (AuditEntry.objects.get().expected, AuditEntry.objects.get().done) == (2, 2)


def test_a_preview_stops_counting(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(auditing, "COUNTED", 2)
    for _ in range(3):
        JobFactory.create(consumer=consumer, state=State.DEAD)
    assert "2 jobs or more" in read_page(operator, all_url("redrive"))


@pytest.mark.parametrize(
    "query",
    [
        "state=nonsense",
        "consumer=x",
        "age=never",
        "key=%00",
        "q=%00",
        "chosen=x",
        f"chosen={2**63}",
        pytest.param(f"chosen={'9' * 5_000}", id="chosen=9..."),
    ],
)
def test_an_invalid_filter_matches_no_job(query: str, operator: Client, consumer: Consumer) -> None:
    job = JobFactory.create(consumer=consumer, state=State.DEAD)
    url = f"{all_url('redrive')}?{query}"
    operator.post(url, {"preview_token": preview_token(operator, url)})
    assert Job.objects.get().id == job.id
    assert Job.objects.get().state == State.DEAD
    assert "0 jobs" in read_page(operator, url)


def test_a_key_that_no_job_can_have_matches_no_job(operator: Client, consumer: Consumer) -> None:
    Consumer.objects.update(exclusive_keys=True)
    published(consumer, key="a")
    assert len(rows(read_page(operator, listing("job"), key="a"))) == 1
    assert not rows(read_page(operator, listing("job"), key="\x00"))


def test_chosen_jobs_are_rescheduled_to_a_time(operator: Client, consumer: Consumer) -> None:
    job, other = published(consumer, 2)
    answer = operator.post(
        listing("job"), {"action": "reschedule", "_selected_action": [job], "index": 0}
    )
    shown = read_page(operator, answer["Location"])
    assert "Due at" in shown
    assert "<title>Reschedule: the chosen jobs" in shown
    [back] = set(re.findall(r'href="([^"]*/job/\?[^"]*)"', shown))
    assert operator.get(unescape(back)).status_code == 200
    assert "valid date" in operator.post(answer["Location"], {"at": "soon"}).content.decode()
    beyond = operator.post(answer["Location"], {"at": "9999-12-31T23:59:59"})
    assert "within 100 years" in beyond.content.decode()
    at = (timezone.now() + timedelta(hours=2)).replace(microsecond=0)
    operator.post(answer["Location"], {"at": f"{at:%Y-%m-%dT%H:%M:%S}"})
    assert Job.objects.get(id=job).available_at == at
    assert Job.objects.get(id=other).available_at != at


def test_all_jobs_of_a_page_fit_in_the_url_that_asks_for_a_time(operator: Client) -> None:
    """Some releases of Django refuse redirects of more than 2,048 characters."""
    selected = [2**59 + number for number in range(100)]
    answer = operator.post(listing("job"), {"action": "reschedule", "_selected_action": selected})
    assert answer.status_code == 302
    assert len(answer["Location"]) < 2000


def test_an_unfinished_act_is_continued_or_stopped(operator: Client, consumer: Consumer) -> None:
    JobFactory.create(consumer=consumer, state=State.DEAD)
    first = auditing.begin(Event.REDRIVE, Selection(), by="olga", subject="a test")
    assert "data-pulljobs-refresh" in read_page(operator, page("auditentry", first.pk))
    operator.post(press_url(first, "go-on"))
    second = auditing.begin(Event.KILL, Selection(), by="olga", subject="a test")
    operator.post(press_url(second, "stop"))
    operator.post(press_url(second, "go-on"))
    acts = AuditEntry.objects.order_by("pk").values_list("done", "stopped_by")
    assert list(acts) == [(1, ""), (0, "olga")]


def test_the_audit_trail_cannot_be_edited(
    operator: Client, reader: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(consumer=consumer, state=State.DEAD)
    act(operator, "redrive", [job.id, 17])
    [entry] = AuditEntry.objects.all()
    before = list(AuditEntry.objects.values())
    for browser in (operator, reader):
        assert 'name="_save"' not in read_page(browser, page("auditentry", entry.pk))
        assert browser.post(page("auditentry", entry.pk), {"by": "x"}).status_code == 403
        delete = reverse("admin:pulljobs_auditentry_delete", args=[entry.pk])
        assert browser.post(delete, {"post": "yes"}).status_code == 403
    assert reader.post(press_url(entry, "stop")).status_code == 403
    assert list(AuditEntry.objects.values()) == before


def test_the_outcome_of_an_act_lists_every_job(operator: Client, consumer: Consumer) -> None:
    job = JobFactory.create(consumer=consumer, state=State.DEAD)
    act(operator, "redrive", [job.id, 17])
    url = reverse("admin:pulljobs_auditentry_outcome", args=[AuditEntry.objects.get().pk])
    lines = b"".join(operator.get(url)).decode().splitlines()
    assert lines[1:] == [
        f"{ids.encode(job.id)},{job.id},redrive,",
        f"{ids.encode(17)},17,not changed,it is no live job any more (delivered or deleted)",
    ]


def test_a_list_that_stopped_its_search_offers_to_look_further_back(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.storage.windows.downwards.__defaults__", (200,))
    other = ConsumerFactory.create()
    [first] = published(consumer)
    published(other, 250)
    text = read_page(operator, listing("job"), consumer=consumer.pk)
    assert not rows(text)
    assert "Look further back" in text
    assert "0 on this page" in text
    assert "older rows may match" in text
    below = Job.objects.filter(consumer=other).order_by("-id").values_list("id", flat=True)[199]
    [row] = rows(read_page(operator, listing("job"), consumer=consumer.pk, id__lt=below))
    assert ids.encode(first) in row


def test_the_page_of_a_job_explains_why_it_waits(operator: Client, consumer: Consumer) -> None:
    [job] = published(consumer)
    assert "No process serves files/census" in read_page(operator, page("job", job))


def test_json_is_indented_and_only_real_images_are_drawn(
    operator: Client, consumer: Consumer
) -> None:
    [job] = published(consumer, payload=json.dumps({"a": [1]}), content_type="application/json")
    assert "{\n  &quot;a&quot;: [" in read_page(operator, page("job", job))
    for payload, drawn in ((PNG, True), (b"<svg onload='x'/>", False)):
        [job] = published(consumer, payload=payload, content_type="image/png")
        message = Job.objects.values_list("message_id", flat=True).get(id=job)
        url = reverse("admin:pulljobs_job_payload", args=[message])
        answer = operator.get(url)
        assert (f'src="{url}"' in read_page(operator, page("job", job))) == drawn
        assert (answer["Content-Type"] == "image/png") == drawn
        assert ("Content-Disposition" in answer) != drawn
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    "payload",
    ['"\\ud800"', "[" * 400 + "0," * 30_000 + "0" + "]" * 400],
    ids=["half a character", "nested deep"],
)
def test_json_that_cannot_be_indented_is_shown_unchanged(
    payload: str, operator: Client, consumer: Consumer
) -> None:
    """JSON with a lone surrogate or deep nesting is shown as stored, and the page stays small."""
    [job] = published(consumer, payload=payload, content_type="application/json")
    text = read_page(operator, page("job", job))
    assert escape(payload) in text
    assert len(text) < 200_000
