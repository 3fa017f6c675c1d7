"""Channels, producers and consumers are created, edited and deleted in the admin."""

import html
import re
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.core.management import call_command
from django.test import Client, override_settings
from django.urls import reverse

from pulljobs.models import AuditEntry, Channel, Consumer, LimitGroup, Producer
from pulljobs.publishing import publish
from pulljobs.states import State
from tests.admin.pages import listing, page, post_form, read_page, secrets, trail
from tests.factories import ConsumerFactory, JobFactory, published

LONG_AGO = datetime(2021, 1, 1, tzinfo=UTC)
MODELS: dict[str, type[Channel] | type[Producer]] = {"channel": Channel, "producer": Producer}


def add_url(model: str) -> str:
    return reverse(f"admin:pulljobs_{model}_add")


def filled(consumer: Consumer, **changes: Any) -> dict[str, Any]:
    """Return the fields of the form of a consumer, with these changes."""
    fields = {
        "name": consumer.name,
        "title": "",
        "channel": consumer.channel_id,
        "type": "pull",
        "callback_url": "",
        "lease_duration": "00:00:30",
        "protocol_lease_duration": "",
        "retry_strategy": "5,30,60",
        "max_retries": 5,
        "retry_jitter": 0.2,
        "max_total_delay": "",
        "max_deliveries": 20,
        "max_queued_per_key": 0,
        "key_overflow": "reject",
        "key_limit_counts": "queued",
        "max_waiting": 512,
        "_continue": "1",
    }
    return fields | changes


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("own", ["", "my-own-token"])
def test_a_token_is_shown_once(model: str, own: str, operator: Client) -> None:
    """The answer to the form shows the token. No later page and no log entry does."""
    data = {"name": "files", "token": own, "_continue": "1"}
    [token] = secrets(operator, add_url(model), data)
    made = MODELS[model].objects.get()
    assert made.has_token(token)
    assert not own or token == own
    for url in (page(model, made.pk), listing(model)):
        text = read_page(operator, url)
        assert token not in text
        assert made.token_digest not in text
    assert token not in LogEntry.objects.get().change_message


@pytest.mark.parametrize("model", MODELS)
def test_a_chosen_token_replaces_the_old_token(model: str, operator: Client) -> None:
    post_form(operator, add_url(model), {"name": "files", "token": "old"})
    made = MODELS[model].objects.get()
    data = {"name": "files", "_continue": "1"}
    assert secrets(operator, page(model, made.pk), data) == []
    assert MODELS[model].objects.get().has_token("old")
    assert not AuditEntry.objects.exists()
    [token] = secrets(operator, page(model, made.pk), data | {"token": "another"})
    assert trail() == [("olga", "rotate token", f"{model} files")]
    rotated = MODELS[model].objects.get()
    assert rotated.has_token(token)
    assert not rotated.has_token("old")


@pytest.mark.parametrize("change", [{"token": "with space"}, {"token": "ümlaut"}])
def test_an_invalid_token_changes_nothing_and_is_not_shown(
    change: dict[str, str], operator: Client
) -> None:
    operator.post(add_url("channel"), {"name": "files", "token": "old"})
    url = page("channel", Channel.objects.get().pk)
    answer = operator.post(url, {"name": "renamed"} | change)
    assert "Please correct the error" in answer.content.decode()
    assert 'value="with' not in answer.content.decode()
    assert Channel.objects.get(name="files").has_token("old")


@pytest.mark.parametrize("model", ["channel", "producer", "consumer", "limitgroup"])
def test_a_form_that_was_opened_before_another_change_does_not_undo_it(
    model: str, operator: Client, consumer: Consumer
) -> None:
    Producer.objects.create(name="scanner")
    LimitGroup.objects.create(name="shared", max_in_flight=9)
    models = {"limitgroup": LimitGroup, "consumer": Consumer, **MODELS}
    rows: Any = models[model]._default_manager
    row = rows.get()
    form = filled(consumer) | {"name": row.name, "max_in_flight": 7, "title": "old"}
    url, given = page(model, row.pk), {"_seen": seen_of(operator, page(model, row.pk))}
    post_form(operator, url, form | given)
    answer = operator.post(url, form | given | {"name": "renamed"})
    assert f"This {row._meta.verbose_name} was changed after" in answer.content.decode()
    assert rows.get().name == row.name
    post_form(operator, url, form | {"_seen": seen_of(operator, url), "name": "renamed"})
    assert rows.get().name == "renamed"


def seen_of(client: Client, url: str) -> str:
    [seen] = re.findall(r'name="_seen" value="([^"]+)"', read_page(client, url))
    return html.unescape(seen)


def test_a_consumer_is_created_and_edited(operator: Client, consumer: Consumer) -> None:
    post_form(
        operator, add_url("consumer"), filled(consumer, name="digest", retry_strategy="linear:1+2")
    )
    made = Consumer.objects.get(name="digest")
    assert made.retry_delays[:3] == [1, 3, 5]
    post_form(operator, page("consumer", made.pk), filled(made, retry_strategy="constant:7"))
    assert Consumer.objects.get(name="digest").retry_delays == [7]
    post_form(operator, page("consumer", made.pk), filled(made, rate="120/m", rate_burst=9))
    made.refresh_from_db()
    assert (made.rate, made.rate_burst, made.rate_per_second) == ("120/m", 9, 2.0)
    post_form(operator, page("consumer", made.pk), filled(made, rate="", rate_burst=""))
    made.refresh_from_db()
    assert (made.rate, made.rate_burst, made.rate_per_second) == ("", None, None)


def test_a_group_is_made_and_changed_and_names_its_consumers(
    operator: Client, consumer: Consumer
) -> None:
    fields = {"name": "stripe-api", "max_in_flight": 3, "rate": "9/m", "rate_burst": ""}
    post_form(operator, reverse("admin:pulljobs_limitgroup_add"), fields)
    group = LimitGroup.objects.get()
    assert (group.max_in_flight, group.rate_per_second) == (3, 0.15)
    post_form(operator, page("consumer", consumer.pk), filled(consumer, limit_group=group.pk))
    listed = operator.get(reverse("admin:pulljobs_limitgroup_changelist")).content.decode()
    assert "9/m and 3 in flight" in listed
    assert str(consumer) in listed
    changed = fields | {"rate_window": "on"}
    post_form(operator, page("limitgroup", group.pk), changed)
    group.refresh_from_db()
    assert group.window_seconds == 60


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"retry_strategy": "sometimes"}, "is no retry strategy"),
        ({"retry_jitter": 2}, "It must be from 0 to 1."),
        ({"lease_duration": "0"}, "It must be at least 1 s and at most 100 years"),
        ({"lease_duration": "00:00:00.6"}, "holders renew a lease after a third of it"),
        ({"protocol_lease_duration": "0"}, "It must be above 0 and at most 100 years."),
        ({"max_total_delay": "-1"}, "It must be from 0 to 100 years."),
        ({"max_deliveries": 0}, "It must be at least 1."),
        ({"max_in_flight": 0}, "It must be at least 1; to stop claims, pause the consumer."),
        ({"rate": "often"}, "is no rate: write a whole number and a unit of time"),
        ({"rate": "0/m"}, "allows no job: write at least 1; to stop claims, pause."),
        ({"rate": "9999999/s"}, "is above 1,000,000 a second: leave the rate empty"),
        ({"rate_burst": 5}, "It must be from 1 to 1000000, and needs a rate without a window."),
        ({"rate_window": "on"}, "It needs a rate."),
        (
            {"rate": "5/s", "rate_burst": 0},
            "It must be from 1 to 1000000, and needs a rate without a window.",
        ),
        ({"name": "a/b"}, "without slashes and NUL"),
        ({"type": "push"}, "needs the URL to push to"),
        ({"callback_url": "nonsense"}, "Enter a valid URL"),
    ],
)
def test_an_invalid_consumer_is_refused(
    change: dict[str, Any], sentence: str, operator: Client, consumer: Consumer
) -> None:
    before = list(Consumer.objects.values())
    answer = operator.post(page("consumer", consumer.pk), filled(consumer) | change)
    assert sentence in answer.content.decode()
    assert list(Consumer.objects.values()) == before


@pytest.mark.parametrize(
    ("days", "sentence"),
    [
        (-1, "It must be from 0 to 100 years."),
        (timedelta.max.days, "It must be from 0 to 100 years."),
        (31, "It must not be above PULLJOBS[&#x27;RETENTION&#x27;]: client message ids are"),
    ],
)
@override_settings(PULLJOBS={"RETENTION": timedelta(days=30)})
def test_an_invalid_dedupe_window_is_refused(days: int, sentence: str, operator: Client) -> None:
    url = page("channel", ConsumerFactory.create().channel_id)
    data = {"name": "files", "_continue": "1"}
    answer = operator.post(url, data | {"dedupe_window": f"{days} 00:00:00"})
    assert sentence in answer.content.decode()
    assert Channel.objects.get().dedupe_window is None
    post_form(operator, url, data | {"dedupe_window": "30 00:00:00"})
    assert Channel.objects.get().dedupe_window == timedelta(days=30)


def test_a_deleted_consumer_keeps_its_jobs_and_can_be_restored(
    operator: Client, consumer: Consumer
) -> None:
    """The jobs of a deleted consumer stay visible, and after a restore it gets new jobs."""
    JobFactory.create(state=State.DEAD, consumer=consumer)
    operator.post(reverse("admin:pulljobs_consumer_delete", args=[consumer.pk]), {"post": "yes"})
    assert Consumer.objects.get().deleted_at is not None
    assert "files / census" in read_page(operator, listing("job"))
    data = {"action": "restore", "_selected_action": [consumer.pk]}
    assert post_form(operator, listing("consumer"), data) == ["1 restored."]
    assert post_form(operator, listing("consumer"), data) == ["0 restored."]
    assert trail() == [("olga", "resume", "deleted consumer files/census")]
    assert published(Consumer.objects.get())


def test_messages_published_before_a_consumer_was_restored_are_not_reported_as_missed(
    operator: Client, consumer: Consumer
) -> None:
    Consumer.objects.update(created_at=LONG_AGO, changed_at=LONG_AGO, deleted_at=LONG_AGO)
    publish(consumer.channel.name, b"x")
    data = {"action": "restore", "_selected_action": [consumer.pk]}
    assert post_form(operator, listing("consumer"), data) == ["1 restored."]
    call_command("pulljobs", "verify", stdout=StringIO())


def test_deleting_a_channel_with_consumers_is_refused(operator: Client, consumer: Consumer) -> None:
    url = reverse("admin:pulljobs_channel_delete", args=[consumer.channel_id])
    operator.post(url, {"post": "yes"})
    assert Channel.objects.exists()


def test_the_page_of_a_secret_continues_to_where_the_form_would_lead(
    operator: Client, consumer: Consumer
) -> None:
    data = {"name": "jobs", "_addanother": "1"}
    assert (
        f'<a href="{add_url("channel")}">Continue</a>'
        in operator.post(add_url("channel"), data).content.decode()
    )


def test_a_popup_closes_and_the_list_says_how_to_get_a_token(operator: Client) -> None:
    answer = operator.post(add_url("channel"), {"name": "files", "_popup": "1"})
    assert "data-popup-response" in answer.content.decode()
    assert "pulljobs-token" not in answer.content.decode()
    assert "Make a new token on the page of files" in read_page(operator, listing("channel"))


def test_a_signing_secret_is_shown_once_and_the_previous_secret_still_signs(
    operator: Client,
) -> None:
    consumer = ConsumerFactory.create()
    url = page("consumer", consumer.pk)
    given: list[str] = []
    for _turn in range(3):
        given += secrets(operator, url, filled(consumer, sign="on"))
        consumer.refresh_from_db()
        assert consumer.signing_secrets() == given[::-1][:2]
    assert len(set(given)) == 3
    subject = f"consumer {consumer.channel}/{consumer}: its signing secret"
    assert trail() == [("olga", "rotate token", subject)] * 3
    for shown in (url, listing("consumer")):
        text = read_page(operator, shown)
        assert not any(secret in html.unescape(text) for secret in given)
        assert consumer.signing_secrets_sealed not in text
    post_form(operator, url, filled(consumer, title="renamed"))
    consumer.refresh_from_db()
    assert consumer.signing_secrets() == [given[2], given[1]]


@pytest.mark.parametrize("model", [*MODELS, "consumer"])
@pytest.mark.parametrize("column", ["token_digest", "token_sealed", "signing_secrets_sealed"])
@pytest.mark.parametrize("lookup", ["", "__startswith"])
def test_filters_reveal_no_secret(
    model: str, column: str, lookup: str, reader: Client, consumer: Consumer
) -> None:
    """A filter by a token or secret is refused, also through the channel or consumers of a row."""
    for name in (column, f"channel__{column}", f"consumer__{column}"):
        assert reader.get(listing(model), {f"{name}{lookup}": "1"}).status_code in (302, 400)


@pytest.mark.parametrize(
    "query",
    [{"type__exact": "pull"}, {"id__in": "{0.pk}"}, {"channel__id__exact": "{0.channel_id}"}],
)
def test_consumers_are_filtered_by_the_offered_filters(
    query: dict[str, str], reader: Client, consumer: Consumer
) -> None:
    ConsumerFactory.create(name="pushed", type="push", callback_url="https://x.example")
    filters = {name: value.format(consumer) for name, value in query.items()}
    text = read_page(reader, listing("consumer"), **filters)
    assert "census" in text
    assert "pushed" not in text.split("<tbody>")[1].split("</tbody>")[0]


def test_secrets_of_a_callback_url_are_shown_to_users_who_may_change_it(
    operator: Client, reader: Client, consumer: Consumer
) -> None:
    """Other users see a masked URL, and no filter reveals the secrets to them."""
    Consumer.objects.update(callback_url="https://us:er@example.com/hook?key=1")
    url = page("consumer", consumer.pk)
    assert "https://us:er@example.com/hook?key=1" in html.unescape(read_page(operator, url))
    text = html.unescape(read_page(reader, url))
    assert "https://***@example.com/hook?***" in text
    assert "us:er" not in text
    for lookup in ("callback_url__startswith", "token_digest__startswith", "callback_url"):
        answer = reader.get(listing("consumer"), {lookup: "https://us"})
        assert (answer.status_code, answer.headers.get("Location")) == (400, None)
    assert reader.get(listing("consumer"), {"type": "pull"}).status_code == 200
