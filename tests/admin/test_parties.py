"""Pauses, resumptions and new tokens: each has a page, a permission and an audit entry."""

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.test import Client, override_settings
from django.urls import reverse

from pulljobs import auditing, weights
from pulljobs.models import ArchivedJob, Channel, Consumer, Message, Producer
from pulljobs.states import Event, State
from pulljobs.storage import throttles
from tests.admin.conftest import browser_of
from tests.admin.pages import listing, page, post_form, read_page, rows, secrets, trail
from tests.factories import USING, JobFactory, claimed, published

pytestmark = pytest.mark.django_db


def act_url(model: str, act: str, pk: int) -> str:
    return reverse(f"admin:pulljobs_{model}_{act}", args=[pk])


def test_a_throttled_consumer_is_marked(operator: Client, consumer: Consumer) -> None:
    throttles.throttle(USING, {consumer.pk: 60.0})
    assert "throttled" in rows(read_page(operator, listing("consumer")))[0]
    operator.post(act_url("consumer", "resume", consumer.pk))
    assert "throttled" not in rows(read_page(operator, listing("consumer")))[0]


@pytest.mark.parametrize("model", ["channel", "consumer"])
def test_a_pause_stops_claims_until_it_is_resumed(
    model: str, operator: Client, consumer: Consumer
) -> None:
    published(consumer, 2)
    pk = consumer.pk if model == "consumer" else consumer.channel_id
    assert "for an hour" in read_page(operator, act_url(model, "pause", pk))
    operator.post(act_url(model, "pause", pk), {"span": "endless"})
    assert not claimed(consumer)
    assert ">paused<" in read_page(operator, page(model, pk))
    assert "paused" in rows(read_page(operator, listing(model)))[0]
    operator.post(act_url(model, "resume", pk))
    assert claimed(consumer)
    assert "paused" not in rows(read_page(operator, listing(model)))[0]
    subject = "channel files" if model == "channel" else "consumer files/census"
    assert trail() == [("olga", "pause", subject), ("olga", "resume", subject)]


def test_a_pause_ends_by_itself(operator: Client, consumer: Consumer) -> None:
    operator.post(act_url("consumer", "pause", consumer.pk), {"span": "15min"})
    consumer.refresh_from_db()
    left = Consumer.objects.values_list("paused_until", flat=True)
    assert left.filter(paused_until__lte=Now() + timedelta(minutes=15)).exists()
    assert left.filter(paused_until__gt=Now() + timedelta(minutes=14)).exists()


def test_a_pause_until_a_past_time_does_not_pause(operator: Client, consumer: Consumer) -> None:
    data = {"span": "1h", "until": "2020-01-31T12:00"}
    assert post_form(operator, act_url("consumer", "pause", consumer.pk), data) == [
        "Claims of census are not paused: that time is in the past."
    ]
    published(consumer)
    assert claimed(consumer)


@pytest.mark.parametrize("model", [Channel, Producer, Consumer])
def test_a_new_token_is_in_one_answer_and_nowhere_else(
    model: type[Channel | Producer | Consumer], operator: Client, consumer: Consumer
) -> None:
    Producer.objects.create(name="scanner")
    token_holder, name = model.objects.get(), model._meta.model_name or ""
    before = token_holder.token_digest
    assert "pulljobs-token" not in read_page(operator, act_url(name, "rotate", token_holder.pk))
    [token] = secrets(operator, act_url(name, "rotate", token_holder.pk), {})
    token_holder.refresh_from_db()
    assert token_holder.has_token(token)
    assert token_holder.token_digest != before
    assert trail()[0][:2] == ("olga", "rotate token")
    urls = [
        page(name, token_holder.pk),
        listing(name),
        act_url(name, "rotate", token_holder.pk),
        listing("auditentry"),
    ]
    assert not any(token in read_page(operator, url) for url in urls)


def test_the_audit_trail_counts_the_jobs_of_a_purge(operator: Client, consumer: Consumer) -> None:
    auditing.note(Event.KILL, by="ops", subject="all that waits", done=3)
    auditing.note_pause(consumer, None, by="ops")
    paused, purged = rows(read_page(operator, listing("auditentry")))
    assert "all that waits 3 finished" in purged
    assert "consumer files/census - finished" in paused


def test_weights_of_keys_are_shown_and_set(operator: Client, consumer: Consumer) -> None:
    Consumer.objects.update(fair_by_key=True)
    url = act_url("consumer", "weights", consumer.pk)
    assert url in read_page(operator, page("consumer", consumer.pk))
    assert post_form(operator, url, {"key": "<b>", "weight": 3}) == ["The weight of <b> is 3."]
    assert post_form(operator, url, {"key": "", "weight": 2})
    assert post_form(operator, url, {"key": "items", "weight": 5})
    assert weights.read_weights(consumer) == {"": 2, "<b>": 3, "items": 5}
    assert "&lt;b&gt;" in operator.get(url).content.decode()
    assert trail()[0] == ("olga", "update", "consumer files/census: weight 3 of key '<b>'")
    answer = operator.post(url, {"key": "a", "weight": 1_001})
    assert "less than or equal to 1000" in answer.content.decode()
    assert len(trail()) == 3


def test_weights_are_changed_only_with_permission(reader: Client, consumer: Consumer) -> None:
    url = act_url("consumer", "weights", consumer.pk)
    assert "Set the weight" not in reader.get(url).content.decode()
    assert reader.post(url, {"key": "a", "weight": 3}).status_code == 403
    assert (weights.read_weights(consumer), trail()) == ({}, [])


@pytest.mark.parametrize("act", ["pause", "resume", "rotate"])
def test_pause_resume_and_rotate_need_a_permission(
    act: str, reader: Client, consumer: Consumer
) -> None:
    before = list(Consumer.objects.values())
    assert act_url("consumer", act, consumer.pk) not in read_page(
        reader, page("consumer", consumer.pk)
    )
    answer = reader.post(act_url("consumer", act, consumer.pk), {"span": "1h"})
    assert answer.status_code == 403
    assert (list(Consumer.objects.values()), trail()) == (before, [])


@pytest.mark.parametrize("act", ["pause", "rotate"])
def test_each_act_needs_its_own_permission(act: str, consumer: Consumer) -> None:
    user = User.objects.create_user("paul", is_staff=True)
    names = [f"{act}_consumer", "view_consumer"]
    user.user_permissions.set(Permission.objects.filter(codename__in=names))
    browser = browser_of(user)
    for other in ("pause", "rotate"):
        answer = browser.get(act_url("consumer", other, consumer.pk))
        assert answer.status_code == (200 if other == act else 403)


def test_a_user_who_may_only_pause_reads_the_result_on_a_page_that_he_may_see(
    consumer: Consumer,
) -> None:
    user = User.objects.create_user("paul", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename="pause_consumer"))
    url = act_url("consumer", "pause", consumer.pk)
    text = read_page(browser_of(user), url)
    links = re.findall(r'<a href="(/admin/[^"]*)"', text)
    assert {browser_of(user).get(link).status_code for link in links} <= {200, 302}, links
    answer = browser_of(user).post(url, {"span": "1h"}, follow=True)
    assert (answer.status_code, "are paused" in answer.content.decode()) == (200, True)


@override_settings(TIME_ZONE="America/New_York")
def test_a_pause_cannot_end_in_a_year_that_cannot_be_read_again(
    operator: Client, consumer: Consumer
) -> None:
    """A pause until the end of year 9999 is refused: west of UTC it is year 10000 in UTC."""
    form = {"span": "1h", "until": "9999-12-31T23:59"}
    answer = operator.post(act_url("consumer", "pause", consumer.pk), form)
    assert "within the years 1000 to 8999" in answer.content.decode()
    assert Consumer.objects.get().paused_until is None
    operator.post(act_url("consumer", "pause", consumer.pk), form | {"until": "2999-12-31T23:59"})
    assert "paused" in rows(read_page(operator, listing("consumer")))[0]


def test_a_consumer_is_not_resumed_by_a_get_request(operator: Client, consumer: Consumer) -> None:
    assert operator.get(act_url("consumer", "resume", consumer.pk)).status_code == 404
    assert operator.get(act_url("consumer", "pause", 17_000)).status_code == 404


@pytest.mark.owner
def test_lists_of_the_registry_have_live_counts(operator: Client, consumer: Consumer) -> None:
    producer = Producer.objects.create(name="scanner")
    for state, count in ((State.QUEUED, 3), (State.INFLIGHT, 2), (State.DEAD, 1)):
        for _ in range(count):
            JobFactory.create(state=state, consumer=consumer)
    published(consumer, delay=timedelta(hours=1))
    Message.objects.update(producer=producer)
    [row] = rows(read_page(operator, listing("consumer")))
    assert re.search(r"active 3 1 2 1 [\d.]+ s 0\.0/s", row)
    assert ArchivedJob.objects.count() == 1
    [row] = rows(read_page(operator, listing("channel")))
    assert re.search(r"active 3 1 2 1 [\d.]+ s 0\.1/s", row)
    assert "0.1/s" in rows(read_page(operator, listing("producer")))[0]
