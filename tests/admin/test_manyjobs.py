"""Acting on all that a filter shows, the trail it leaves, and what the page of a job tells."""

import json
import time
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
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
from tests.admin.pages import act, listing, page, preview_token, read, rows, told
from tests.factories import ConsumerFactory, JobFactory, published

PNG = b"\x89PNG\r\n\x1a\n and so on"


def for_all(word: str) -> str:
    return reverse("admin:pulljobs_job_all", args=[word])


def press(entry: AuditEntry, word: str) -> str:
    return reverse("admin:pulljobs_auditentry_press", args=[entry.pk, word])


def test_all_of_a_filter_is_previewed_then_redriven_and_nothing_else(
    operator: Client, consumer: Consumer
) -> None:
    mine = [JobFactory.create(consumer=consumer, state=State.DEAD).id for _ in range(3)]
    other = JobFactory.create(state=State.DEAD).id
    url = f"{for_all('redrive')}?state=DEAD&consumer={consumer.pk}"
    assert "3 jobs" in read(operator, url)
    assert Job.objects.filter(state=State.DEAD).count() == 4
    operator.post(url, {"preview_token": preview_token(operator, url)})
    assert list(Job.objects.filter(state=State.DEAD).values_list("id", flat=True)) == [other]
    [entry] = AuditEntry.objects.all()
    assert (entry.by, entry.subject) == ("olga", "state DEAD, consumer files/census")
    assert (entry.expected, entry.is_more, entry.done) == (3, False, 3)
    assert "finished" in rows(read(operator, listing("auditentry")))[0]
    text = read(operator, page("auditentry", entry.pk))
    assert all(ids.encode(id) in text for id in mine)


def test_the_trail_tells_only_what_was_told_before(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To this user, of these jobs and this act, and not long ago."""
    for _ in range(2):
        JobFactory.create(consumer=consumer, state=State.DEAD)
    url = f"{for_all('redrive')}?state=DEAD"
    true = preview_token(operator, url)
    other = browser_of(User.objects.create_superuser("otto"))
    forged = [
        *("", "2", true[:-1], signing.dumps([9, False])),
        preview_token(other, url),
        preview_token(operator, f"{url}&channel=0"),
        preview_token(operator, f"{for_all('delete')}?state=DEAD"),
    ]
    before = list(Job.objects.values())
    for given in forged:
        assert told(operator, url, {"preview_token": given})[0].startswith("Nothing was changed")
    with monkeypatch.context() as patch:
        soon = time.time() + timedelta(days=1).total_seconds() + 60
        patch.setattr("django.core.signing.time.time", lambda: soon)
        assert told(operator, url, {"preview_token": true})[0].startswith("Nothing was changed")
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
    assert "2 jobs or more" in read(operator, for_all("redrive"))


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
def test_what_is_none_of_the_choices_means_no_job(
    query: str, operator: Client, consumer: Consumer
) -> None:
    job = JobFactory.create(consumer=consumer, state=State.DEAD)
    url = f"{for_all('redrive')}?{query}"
    operator.post(url, {"preview_token": preview_token(operator, url)})
    assert Job.objects.get().id == job.id
    assert Job.objects.get().state == State.DEAD
    assert "0 jobs" in read(operator, url)


def test_a_key_that_nobody_can_have_finds_nothing(operator: Client, consumer: Consumer) -> None:
    Consumer.objects.update(exclusive_keys=True)
    published(consumer, key="a")
    assert len(rows(read(operator, listing("job"), key="a"))) == 1
    assert not rows(read(operator, listing("job"), key="\x00"))


def test_chosen_jobs_are_rescheduled_to_a_time(operator: Client, consumer: Consumer) -> None:
    job, other = published(consumer, 2)
    answer = operator.post(
        listing("job"), {"action": "reschedule", "_selected_action": [job], "index": 0}
    )
    assert "Due at" in read(operator, answer["Location"])
    assert "valid date" in operator.post(answer["Location"], {"at": "soon"}).content.decode()
    beyond = operator.post(answer["Location"], {"at": "9999-12-31T23:59:59"})
    assert "within 100 years" in beyond.content.decode()
    at = (timezone.now() + timedelta(hours=2)).replace(microsecond=0)
    operator.post(answer["Location"], {"at": f"{at:%Y-%m-%dT%H:%M:%S}"})
    assert Job.objects.get(id=job).available_at == at
    assert Job.objects.get(id=other).available_at != at


def test_what_is_under_way_goes_on_or_is_stopped(operator: Client, consumer: Consumer) -> None:
    JobFactory.create(consumer=consumer, state=State.DEAD)
    first = auditing.begin(Event.REDRIVE, Selection(), by="olga", subject="a test")
    assert "data-pulljobs-refresh" in read(operator, page("auditentry", first.pk))
    operator.post(press(first, "go-on"))
    second = auditing.begin(Event.KILL, Selection(), by="olga", subject="a test")
    operator.post(press(second, "stop"))
    operator.post(press(second, "go-on"))
    told = AuditEntry.objects.order_by("pk").values_list("done", "stopped_by")
    assert list(told) == [(1, ""), (0, "olga")]


def test_nobody_edits_the_trail(operator: Client, reader: Client, consumer: Consumer) -> None:
    job = JobFactory.create(consumer=consumer, state=State.DEAD)
    act(operator, "redrive", [job.id, 17])
    [entry] = AuditEntry.objects.all()
    before = list(AuditEntry.objects.values())
    for browser in (operator, reader):
        assert 'name="_save"' not in read(browser, page("auditentry", entry.pk))
        assert browser.post(page("auditentry", entry.pk), {"by": "x"}).status_code == 403
        delete = reverse("admin:pulljobs_auditentry_delete", args=[entry.pk])
        assert browser.post(delete, {"post": "yes"}).status_code == 403
    assert reader.post(press(entry, "stop")).status_code == 403
    assert list(AuditEntry.objects.values()) == before


def test_an_outcome_is_told_job_by_job(operator: Client, consumer: Consumer) -> None:
    job = JobFactory.create(consumer=consumer, state=State.DEAD)
    act(operator, "redrive", [job.id, 17])
    url = reverse("admin:pulljobs_auditentry_outcome", args=[AuditEntry.objects.get().pk])
    lines = b"".join(operator.get(url)).decode().splitlines()
    assert lines[1:] == [
        f"{ids.encode(job.id)},{job.id},redrive,",
        f"{ids.encode(17)},17,not changed,it is no live job any more (delivered or deleted)",
    ]


def test_a_page_that_found_little_says_how_far_it_looked(
    operator: Client, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.storage.windows.downwards.__defaults__", (200,))
    other = ConsumerFactory.create()
    [first] = published(consumer)
    published(other, 250)
    text = read(operator, listing("job"), consumer=consumer.pk)
    assert not rows(text)
    assert "Look further back" in text
    below = Job.objects.filter(consumer=other).order_by("-id").values_list("id", flat=True)[199]
    [row] = rows(read(operator, listing("job"), consumer=consumer.pk, id__lt=below))
    assert ids.encode(first) in row


def test_why_a_job_waits(operator: Client, consumer: Consumer) -> None:
    [job] = published(consumer)
    assert "No process serves files/census" in read(operator, page("job", job))


def test_json_is_indented_and_images_are_what_they_say(
    operator: Client, consumer: Consumer
) -> None:
    [job] = published(consumer, payload=json.dumps({"a": [1]}), content_type="application/json")
    assert "{\n  &quot;a&quot;: [" in read(operator, page("job", job))
    for payload, drawn in ((PNG, True), (b"<svg onload='x'/>", False)):
        [job] = published(consumer, payload=payload, content_type="image/png")
        message = Job.objects.values_list("message_id", flat=True).get(id=job)
        url = reverse("admin:pulljobs_job_payload", args=[message])
        answer = operator.get(url)
        assert (f'src="{url}"' in read(operator, page("job", job))) == drawn
        assert (answer["Content-Type"] == "image/png") == drawn
        assert ("Content-Disposition" in answer) != drawn
        assert answer["X-Content-Type-Options"] == "nosniff"
        assert answer["Content-Security-Policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize(
    "payload",
    ['"\\ud800"', "[" * 400 + "0," * 30_000 + "0" + "]" * 400],
    ids=["half a character", "nested deep"],
)
def test_json_that_can_not_be_indented_is_shown_as_it_is(
    payload: str, operator: Client, consumer: Consumer
) -> None:
    """Or a producer could break the page, or have it sent by the ten megabytes."""
    [job] = published(consumer, payload=payload, content_type="application/json")
    text = read(operator, page("job", job))
    assert escape(payload) in text
    assert len(text) < 200_000
