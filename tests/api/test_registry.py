"""Producers, channels and consumers: GET, PUT and DELETE, and the permissions that they need."""

import base64
import gzip
import re
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import unquote

import pytest
from django.core.exceptions import ValidationError
from django.db import InternalError, OperationalError, connection, connections
from django.db.models.functions import Now
from django.db.models.signals import pre_delete
from django.test import override_settings
from django.utils.dateparse import parse_datetime
from django.utils.http import http_date
from psycopg import errors

from pulljobs import operating, registering, weights
from pulljobs.api.error_answers import refusal_of
from pulljobs.errors import InvalidRegistration
from pulljobs.models import ArchivedJob, AuditEntry, Channel, Consumer, Job, LimitGroup, Producer
from pulljobs.models.token_holders import validate_name
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from pulljobs.states import State
from pulljobs.storage import dead, throttles
from tests.api.caller import job_in, kill, subscription
from tests.api.management import FORM, Manager, user
from tests.factories import USING, ConsumerFactory
from tests.sessions import at_once

URL = "http://example.com/hook?a=1"
ITEMS = ["/producer/p", "/channel/orders", "/channel/orders/consumer/k"]
LISTS = ["/producers", "/channels", "/channel/orders/consumers"]


@pytest.fixture
def orders(manager: Manager) -> Any:
    return manager.put("/channel/orders", token="secret", name="Orders")


def fields_of(url: str, **more: Any) -> dict[str, Any]:
    return {"callbackUrl": URL, **more} if "consumer" in url else more


@pytest.mark.parametrize("url", ITEMS)
def test_a_put_makes_it_and_a_get_shows_the_same(url: str, orders: Any, manager: Manager) -> None:
    """A PUT that makes a row gets 200 and the body of a GET. Last-Modified is its ChangedAt."""
    seen = orders if url == "/channel/orders" else None
    made: Any = manager.put(url, seen, **fields_of(url, token="t-1", name="A name"))
    assert made.status_code == 200, made.content
    got = manager.get(url)
    assert (got.status_code, got.json()) == (200, made.json())
    assert got["Last-Modified"] == made["Last-Modified"]
    changed_at = parse_datetime(got.json()["ChangedAt"])
    assert isinstance(changed_at, datetime)
    assert http_date(int(changed_at.timestamp())) == got["Last-Modified"]
    assert got.json()["ID"] == url.rpartition("/")[2]
    assert (got.json()["Name"], got.json()["Token"]) == ("A name", "t-1")


def test_the_shapes(orders: Any, manager: Manager) -> None:
    """Producers have the documented fields, and channels and consumers the documented URLs."""
    manager.put("/producer/p")
    manager.put("/channel/orders/consumer/k", callbackUrl=URL, type="pull")
    assert list(manager.get("/producer/p").json()) == ["ID", "Name", "Token", "ChangedAt"]
    channel = manager.get("/channel/orders").json()
    assert {key: channel[key] for key in channel if key.endswith("URL")} == {
        "ConsumersURL": "/channel/orders/consumers",
        "MessagesURL": "/channel/orders/messages",
        "BroadcastURL": "/channel/orders/broadcast",
        "MessagesStatusURL": "/channel/orders/messages-status",
    }
    consumer = manager.get("/channel/orders/consumer/k").json()
    assert consumer["CallbackURL"] == URL
    assert consumer["DeadLetterQueueURL"] == "/channel/orders/consumer/k/dlq"
    assert consumer["Type"] == "pull"


@pytest.mark.parametrize("url", ITEMS)
def test_what_is_left_out_is_set_too(url: str, orders: Any, manager: Manager) -> None:
    """A PUT without a token replaces it, without a name resets it, without a type sets push."""
    seen = orders if url == "/channel/orders" else None
    first: Any = manager.put(url, seen, **fields_of(url, token="t-1", name="A name", type="pull"))
    second: Any = manager.put(url, first, **fields_of(url))
    assert re.fullmatch(r"[A-Za-z0-9]{12}", second.json()["Token"])
    assert second.json()["Name"] == second.json()["ID"]
    if "consumer" in url:
        assert (first.json()["Type"], second.json()["Type"]) == ("pull", "push")


@pytest.mark.parametrize("url", ITEMS)
def test_preconditions(url: str, orders: Any, manager: Manager) -> None:
    """A PUT of a stored row is 400 without If-Unmodified-Since, 412 if it is not Last-Modified."""
    made: Any = orders if url == "/channel/orders" else manager.put(url, **fields_of(url))
    last_modified = made["Last-Modified"]
    for seen, status in [(None, 400), ("", 400), ("x", 412), (f" {last_modified}x", 412)]:
        assert manager.put(url, seen, **fields_of(url, token="new")).status_code == status
    assert manager.get(url).json() == made.json()
    assert manager.put(url, made, **fields_of(url, token="new")).status_code == 200
    assert manager.put(url, made, **fields_of(url, token="newer")).status_code == 412


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("url", ITEMS)
def test_of_writers_at_once_one_wins(url: str, orders: Any, manager: Manager) -> None:
    """One of several PUTs with the same precondition succeeds, and the others get 412."""
    made: Any = orders if url == "/channel/orders" else manager.put(url, **fields_of(url))

    def put(number: int) -> Any:
        return Manager("boss").put(url, made, **fields_of(url, token=f"t-{number}")).status_code

    assert sorted(at_once(6, put)) == [200] + [412] * 5


@pytest.mark.django_db(transaction=True)
def test_of_makers_at_once_one_makes_it(manager: Manager) -> None:
    """If six PUTs create the same row, one succeeds. Five lack the precondition and get 400."""

    def put(number: int) -> Any:
        return Manager("boss").put("/producer/p", token=f"t-{number}").status_code

    assert sorted(at_once(6, put)) == [200] + [400] * 5


@pytest.mark.parametrize(
    ("callback", "shown"),
    [
        ("https://us%40er:pass@example.com:8443/hook", "https://***@example.com:8443/hook"),
        ("https://key@[::1]/hook?token=a&b=c", "https://***@[::1]/hook?***"),
        ("http://example.com/a%20b/;c", "http://example.com/a%20b/;c"),
    ],
)
def test_secrets_of_a_callback_url_are_shown_to_those_who_may_change_it(
    callback: str, shown: str, orders: Any, manager: Manager
) -> None:
    """A user who may not change a consumer sees its URL masked, and no PUT accepts the mask."""
    url = "/channel/orders/consumer/k"
    made = manager.put(url, callbackUrl=callback)
    user("reader", "view", "add")
    assert Manager("reader").get(url).json()["CallbackURL"] == shown
    with override_settings(PULLJOBS={"API_ACCESS": "read-only"}):
        assert Manager().get(url).json()["CallbackURL"] == shown
    put_back = manager.put(url, made, callbackUrl=shown)
    assert put_back.status_code == (200 if callback == shown else 400)
    assert manager.get(url).json()["CallbackURL"] == callback


@pytest.mark.parametrize(
    "url", ["ftp://user:pass@h/", "http://user:pass", "http://u:p?a@b/", "u:p@h"]
)
def test_of_a_callback_url_that_can_t_be_read_nothing_is_shown(url: str, orders: Any) -> None:
    """A stored callback URL that cannot be parsed is masked as a whole."""
    consumer = ConsumerFactory.create(callback_url=url)
    user("reader", "view")
    shown = Manager("reader").get(f"/channel/{consumer.channel.name}/consumer/{consumer.name}")
    assert shown.json()["CallbackURL"] == "***"


@pytest.mark.parametrize("url", ITEMS)
def test_a_put_that_changes_nothing_leaves_the_time(
    url: str, orders: Any, manager: Manager
) -> None:
    seen = orders if url == "/channel/orders" else None
    first: Any = manager.put(url, seen, **fields_of(url, token="t", name="n", type="push"))
    second: Any = manager.put(url, first, **fields_of(url, token="t", name="n", type="push"))
    assert second.json() == first.json()


@pytest.mark.parametrize("url", ITEMS)
@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/json",
        "multipart/form-data; boundary=x",
        "Application/x-www-form-urlencoded",
    ],
)
def test_only_a_form_or_json_is_taken(
    url: str, content_type: str, orders: Any, manager: Manager
) -> None:
    assert manager.put(url, orders, content_type=content_type, token="t").status_code == 415


def test_the_media_type_ends_at_the_semicolon(manager: Manager) -> None:
    form = "application/x-www-form-urlencoded; charset=utf-8"
    answer: Any = manager.put("/producer/p", content_type=form, name="Größe")
    assert (answer.status_code, answer.json()["Name"]) == (200, "Größe")


@pytest.mark.parametrize(
    "fields",
    [
        {"token": "with space"},
        {"token": "é"},
        {"token": "x" * 256},
        {"name": "x" * 256},
        {"name": "a\x00b"},
        {f"f{number}": "x" for number in range(1001)},
    ],
)
def test_fields_out_of_bounds(fields: dict[str, str], manager: Manager) -> None:
    """A token or name with wrong characters or length, or too many fields, make no row."""
    answer = manager.put("/producer/p", **fields)
    assert (answer.status_code, answer["Content-Type"]) == (400, "text/plain; charset=utf-8")
    assert not Producer.objects.exists()


def test_bodies_and_names_that_are_too_long(manager: Manager) -> None:
    assert manager.put("/producer/p", name="x" * 20_000).status_code == 413
    assert manager.put(f"/producer/{'p' * 256}").status_code == 400
    assert manager.put("/producer/%00").status_code == 400
    assert manager.get("/producer/%00").status_code == 404


@pytest.mark.parametrize(
    "url",
    ["/hook", "example.com", "ftp://a/b", "mailto:x", "http://", "http://a b/", "http://[x"],
)
def test_the_callback_url_must_be_absolute(url: str, orders: Any, manager: Manager) -> None:
    """A relative or malformed callbackUrl is refused with 400, even for a pull consumer."""
    path = "/channel/orders/consumer/k"
    assert manager.put(path, callbackUrl=url, type="pull").status_code == 400
    assert manager.get(path).status_code == 404


def test_a_pull_consumer_needs_no_callback_url_and_a_push_consumer_does(
    orders: Any, manager: Manager
) -> None:
    path = "/channel/orders/consumer/k"
    assert manager.put(path).status_code == 400
    assert manager.put(path, type="push").status_code == 400
    made = manager.put(path, type="pull")
    assert (made.status_code, made.json()["CallbackURL"]) == (200, "")
    assert manager.put(path, made).status_code == 400, "it would become a push consumer"


def test_a_put_takes_json(orders: Any, manager: Manager) -> None:
    path, fields = "/channel/orders/consumer/k", {"callbackUrl": URL, "type": "pull", "name": "K"}
    made = manager.put_json(path, fields)
    assert made.status_code == 200, made.content
    assert (made.json()["CallbackURL"], made.json()["Type"]) == (URL, "pull")
    assert (
        manager.put(path, made, token=made.json()["Token"], **fields)["Last-Modified"]
        == (made["Last-Modified"])
    ), "a form with these fields changes nothing"


@pytest.mark.parametrize("given", [{"name": 5}, {"token": ["t"]}, [], "x"])
def test_json_that_is_not_an_object_of_texts_is_refused(given: Any, manager: Manager) -> None:
    assert manager.put_json("/producer/p", given).status_code == 400
    assert not Producer.objects.exists()


@pytest.mark.parametrize("name", [".", "%2E%2E"])
def test_a_name_that_paths_resolve_is_refused(name: str, manager: Manager) -> None:
    assert manager.put(f"/producer/{name}").status_code in (400, 404)
    with pytest.raises(ValidationError, match="paths of URLs resolve"):
        validate_name(".")


@override_settings(PULLJOBS={"PROTOCOL_MAX_RETRIES": 7, "PROTOCOL_RETRY_STRATEGY": "1,2,3"})
def test_new_consumers_have_the_retries_of_the_settings(orders: Any, manager: Manager) -> None:
    """A new consumer gets the retries of the settings. A later PUT keeps an operator's change."""
    path = "/channel/orders/consumer/k"
    made = manager.put(path, type="pull", token="t")
    consumer = Consumer.objects.get()
    assert (consumer.max_retries, consumer.retry_delays) == (7, [1, 2, 3])
    Consumer.objects.update(max_retries=2)
    assert manager.put(path, made, type="pull", token="t").status_code == 200
    assert Consumer.objects.get().max_retries == 2


@pytest.mark.parametrize(
    ("fields", "type"),
    [({}, "push"), ({"type": ""}, "push"), ({"type": "pull"}, "pull"), ({"type": "push"}, "push")],
)
def test_a_consumer_has_one_of_the_types(
    fields: dict[str, str], type: str, orders: Any, manager: Manager
) -> None:
    answer: Any = manager.put("/channel/orders/consumer/k", callbackUrl=URL, **fields)
    assert (answer.status_code, answer.json()["Type"]) == (200, type)


@pytest.mark.parametrize("type", ["Pull", "PUSH", "x", "pull "])
def test_another_type_changes_nothing(type: str, orders: Any, manager: Manager) -> None:
    """A type other than "pull" and "push" is refused, on creation and on change."""
    path = "/channel/orders/consumer/k"
    assert manager.put(path, callbackUrl=URL, type=type).status_code == 400
    assert not Consumer.objects.exists()
    made = manager.put(path, callbackUrl=URL, type="pull")
    before = manager.get(path).json()
    assert manager.put(path, made, callbackUrl=URL, type=type).status_code == 400
    assert manager.get(path).json() == before


def test_the_order_of_checks_of_a_consumer(orders: Any, manager: Manager) -> None:
    """The order is: content type, channel, missing and wrong precondition, callbackUrl, type."""
    path = "/channel/orders/consumer/k"
    made = manager.put(path, callbackUrl=URL)
    bad = {"callbackUrl": "x", "type": "x"}
    assert manager.put("/channel/x/consumer/k", content_type="", **bad).status_code == 415
    assert manager.put("/channel/x/consumer/k", **bad).status_code == 404
    assert manager.put(path, None, **bad).status_code == 400
    assert manager.put(path, "x", **bad).status_code == 412
    assert b"callbackUrl" in manager.put(path, made, **bad).content
    assert b"type" in manager.put(path, made, callbackUrl=URL, type="x").content


@pytest.mark.parametrize(
    "url", [*ITEMS, "/channel/orders/consumers", "/channel/orders/consumer/k/dlq"]
)
def test_unknown_ones_are_404(url: str, manager: Manager) -> None:
    """A GET of a producer, channel or consumer that does not exist is 404."""
    answer = manager.get(url)
    assert (answer.status_code, answer["Content-Type"]) == (404, "text/plain; charset=utf-8")


def test_ids_compare_exactly(orders: Any, manager: Manager) -> None:
    for name in ("ORDERS", "order_", "%25", "orders%20"):
        assert manager.get(f"/channel/{name}").status_code == 404


def test_ids_are_free_text(manager: Manager) -> None:
    assert manager.put("/channel/Gr%C3%B6%C3%9Fe%201%25").status_code == 200
    made = Channel.objects.get()
    assert made.name == "Größe 1%"
    [link] = manager.get("/channels").json()["Result"]
    assert manager.get(link).json()["ID"] == made.name
    assert manager.get(manager.get(link).json()["ConsumersURL"]).status_code == 200


@pytest.mark.parametrize("name", ["%20", "%09", "%20p", "p%20", "p%0Aq", "p%7Fq"])
def test_a_producer_that_no_header_can_name_is_refused(name: str, manager: Manager) -> None:
    refused = manager.put(f"/producer/{name}")
    assert (refused.status_code, b"fit into a header" in refused.content) == (400, True)
    with pytest.raises(ValidationError, match="fit into a header"):
        Producer(name=unquote(name)).full_clean()
    assert not Producer.objects.filter(name=unquote(name)).exists()


# Lists


@pytest.mark.parametrize("url", LISTS)
def test_lists_page_by_25_newest_first(url: str, orders: Any, manager: Manager) -> None:
    """Links lead from page to page until an empty one, and back to the same pages."""
    item = {"/producers": "/producer/", "/channels": "/channel/"}.get(url, url[:-1] + "/")
    names = [f"n{number}" for number in range(60)]
    for name in names:
        _make(url, name)
    made = [f"{item}{name}" for name in reversed(names)]
    expected = [*made, "/channel/orders"] if url == "/channels" else made
    first = manager.get(url)
    assert list(first.json()) == ["Result", "Pages", "Links"]
    assert first.json()["Links"] is None
    seen, page, pages = [], first, []
    while page.json()["Result"]:
        assert set(page.json()["Pages"]) == {"next", "previous"}
        pages.append(page.json()["Result"])
        seen += pages[-1]
        last, page = page, manager.get(page.json()["Pages"]["next"])
    assert (seen, [len(page) for page in pages]) == (expected, [25, 25, len(expected) - 50])
    assert page.json() == {"Result": [], "Pages": {}, "Links": None}
    back = manager.get(last.json()["Pages"]["previous"])
    assert back.json()["Result"] == pages[1]
    assert manager.get(back.json()["Pages"]["previous"]).json()["Result"] == pages[0]
    assert manager.get(first.json()["Pages"]["previous"]).json()["Pages"] == {}


def _make(url: str, name: str) -> None:
    if url == "/producers":
        Producer.objects.create(name=name)
    elif url == "/channels":
        Channel.objects.create(name=name)
    else:
        Consumer.objects.create(name=name, channel=Channel.objects.get(name="orders"))


@pytest.mark.parametrize("url", LISTS)
@pytest.mark.parametrize(
    "cursor", ["x", "MQ==", "fHg=", "8J+YgHwx", "9" * 5000, "OTk5OTk5OTk5OTk5OTk5OTk5OTk5fDE="]
)
@pytest.mark.parametrize("name", ["next", "previous"])
def test_a_cursor_that_can_t_be_read_is_ignored(
    url: str, cursor: str, name: str, orders: Any, manager: Manager
) -> None:
    assert manager.get(url, **{name: cursor}).json() == manager.get(url).json()


@pytest.mark.parametrize("url", LISTS)
def test_both_cursors_are_400(url: str, orders: Any, manager: Manager) -> None:
    """A list that is asked for the next and the previous page at once is refused."""
    assert manager.get(url, next="x", previous="y").status_code == 400


# Deleting


def test_a_consumer_without_jobs_is_deleted(orders: Any, manager: Manager) -> None:
    path = "/channel/orders/consumer/k"
    made = manager.put(path, callbackUrl=URL)
    assert manager.delete(path).status_code == 400
    assert manager.delete(path, "x").status_code == 412
    assert manager.delete(path, made).status_code == 204
    for answer in (manager.get(path), manager.delete(path, made)):
        assert answer.status_code == 404
    assert manager.get("/channel/orders/consumers").json()["Result"] == []
    assert publish("orders", b"x").job_ids == []


def test_a_deleted_consumer_can_be_put_again(orders: Any, manager: Manager) -> None:
    path = "/channel/orders/consumer/k"
    manager.delete(path, manager.put(path, callbackUrl=URL))
    assert manager.put(path, callbackUrl=URL, token="t").status_code == 200
    assert manager.get(path).json()["Token"] == "t"
    assert len(publish("orders", b"x").job_ids) == 1


def test_a_deleted_consumer_comes_back_as_a_new_one(orders: Any, manager: Manager) -> None:
    """A consumer that is put again after its deletion has no pause, limit or secret from before."""
    path = "/channel/orders/consumer/k"
    manager.put(path, callbackUrl=URL, type="pull", name="Old")
    there = Consumer.objects.get()
    there.max_in_flight, there.max_queued_per_key, there.exclusive_keys = 1, 1, True
    there.rate, there.rate_burst = "1/d", 1
    there.lease_duration, there.retry_strategy = timedelta(hours=1), "none"
    there.set_signing_secret()
    operating.pause(there, there.created_at + timedelta(days=1))
    there.save()
    weights.set_weight(there, "a", 3)
    throttles.throttle(USING, {there.pk: 60.0})
    assert manager.delete(path, manager.get(path)).status_code == 204
    for url in (path, "/channel/orders/consumer/new"):
        assert manager.put(url, callbackUrl=URL, type="pull").status_code == 200
    again, new = Consumer.objects.order_by("id")
    assert again.pk == there.pk
    own = {"id", "name", "token_digest", "token_sealed", "created_at", "changed_at"}
    for field in {field.attname for field in Consumer._meta.concrete_fields} - own:
        assert getattr(again, field) == getattr(new, field), field
    assert weights.read_weights(again) == {}
    publish("orders", b"x")
    assert len(Puller(USING, again).claim(1).jobs) == 1


def test_a_put_sets_the_rate_and_leaves_it_where_it_is_not_sent(
    orders: Any, manager: Manager
) -> None:
    path = "/channel/orders/consumer/k"

    def put(**fields: str) -> tuple[Any, Any]:
        seen = manager.get(path) if Consumer.objects.exists() else None
        answer = manager.put(path, seen, callbackUrl=URL, **fields)
        assert answer.status_code == 200, answer.content
        return answer.json()["Rate"], answer.json()["RateBurst"]

    assert put() == (None, None)
    assert put(rate="100/m", rateBurst="5") == ("100/m", 5)
    assert put() == ("100/m", 5)
    assert put(rate="10/s") == ("10/s", 5)
    assert Consumer.objects.get().rate_per_second == 10
    assert put(rateBurst="") == ("10/s", None)
    assert put(rate="10/s", rateBurst="7") == ("10/s", 7)
    assert put(rate="") == (None, None)
    assert Consumer.objects.get().rate_per_second is None


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"rate": "often"}, "is no rate: write a whole number and a unit of time"),
        ({"rate": "-1/s"}, "is no rate"),
        ({"rate": "0/s"}, "allows no job: write at least 1"),
        ({"rate": "9999999/s"}, "is above 1,000,000 a second"),
        ({"rateBurst": "5"}, "The burst 5 needs a rate"),
        ({"rate": "1/s", "rateBurst": "0"}, "The burst must be from 1 to 1,000,000, not 0"),
        (
            {"rate": "1/s", "rateBurst": "-1"},
            "rateBurst must be a whole number of at most 9 digits, not '-1'",
        ),
        ({"rate": "1/s", "rateBurst": "2000000"}, "The burst must be from 1 to 1,000,000"),
    ],
)
def test_a_rate_that_cannot_work_is_refused(
    fields: dict[str, str], problem: str, orders: Any, manager: Manager
) -> None:
    answer = manager.put("/channel/orders/consumer/k", callbackUrl=URL, **fields)
    assert answer.status_code == 400
    assert problem in answer.content.decode()
    assert not Consumer.objects.exists()


def test_a_put_sets_the_window_the_bound_and_the_group(orders: Any, manager: Manager) -> None:
    path, names = "/channel/orders/consumer/k", ("RateWindow", "MaxInFlight", "LimitGroup")

    def put(**fields: str) -> tuple[Any, ...]:
        seen = manager.get(path) if Consumer.objects.exists() else None
        answer = manager.put(path, seen, callbackUrl=URL, **fields)
        assert answer.status_code == 200, answer.content
        return tuple(map(answer.json().get, names))

    LimitGroup.objects.create(name="stripe-api")
    wanted = {"rate": "9/m", "rateWindow": "true", "maxInFlight": "3", "limitGroup": "stripe-api"}
    assert put(**wanted) == put() == (True, 3, "stripe-api")
    assert put(rate="", maxInFlight="", limitGroup="") == (False, None, None)


def test_a_put_sets_the_limits_by_key(orders: Any, manager: Manager) -> None:
    path, names = "/channel/orders/consumer/k", ("MaxInFlightPerKey", "RatePerKey", "FairByKey")

    def put(**fields: str) -> tuple[Any, ...]:
        seen = manager.get(path) if Consumer.objects.exists() else None
        answer = manager.put(path, seen, callbackUrl=URL, **fields)
        assert answer.status_code == 200, answer.content
        return tuple(map(answer.json().get, names))

    wanted = {"rate": "9/m", "ratePerKey": "true", "maxInFlightPerKey": "3", "fairByKey": "true"}
    assert put(**wanted) == put() == (3, True, True)
    consumer = Consumer.objects.get()
    assert (consumer.rate_per_second, consumer.key_rate_per_second) == (None, 9 / 60)
    assert put(rate="", maxInFlightPerKey="", fairByKey="false") == (None, False, False)


def test_keys_get_weights_with_permission_and_an_audit_entry(orders: Any, manager: Manager) -> None:
    path = "/channel/orders/consumer/k"
    manager.put(path, callbackUrl=URL, fairByKey="true")
    assert manager.put(f"{path}/weights", key="a/b", weight="3").json() == {
        "Key": "a/b",
        "Weight": 3,
    }
    assert manager.put_json(f"{path}/weights", {"weight": "2"}).json() == {"Key": "", "Weight": 2}
    known = [{"Key": "", "Weight": 2}, {"Key": "a/b", "Weight": 3}]
    assert manager.get(f"{path}/weights").json() == {"Result": known, "Next": None}
    assert manager.get(f"{path}/weights", after="").json()["Result"] == known[1:]
    entries = AuditEntry.objects.order_by("id").values_list("by", "act", "subject")
    assert entries[0] == ("boss", "update", "consumer orders/k: weight 3 of key 'a/b'")
    manager.put(f"{path}/weights", key="a/b", weight="1")
    assert manager.get(f"{path}/weights").json()["Result"] == known[:1]
    user("watcher", "view")
    assert Manager("watcher").get(f"{path}/weights").status_code == 200
    assert Manager("watcher").put(f"{path}/weights", key="a", weight="3").status_code == 403
    assert Manager().get(f"{path}/weights").status_code == 401
    assert manager.get("/channel/orders/consumer/other/weights").status_code == 404


def test_fields_of_a_form_may_be_in_any_case_and_misspelt_ones_are_named(
    orders: Any, manager: Manager
) -> None:
    """Form fields may be in any case. A misspelt one is refused with the nearest name."""
    path = "/channel/orders/consumer/k"
    assert manager.put(path, CallbackURL=URL, FairByKey="true").json()["FairByKey"] is True
    assert manager.put(f"{path}/weights", Key="a", WEIGHT="3").json() == {"Key": "a", "Weight": 3}
    refused = manager.put(f"{path}/weights", keys="a", weight="4")
    assert (refused.status_code, b"no field 'keys' (the nearest is key)" in refused.content) == (
        400,
        True,
    )
    assert manager.put("/limit-group/stripe", MaxInFlight="3").json()["MaxInFlight"] == 3
    for put in (manager.put_json, lambda at, given: manager.put(at, **given)):
        refused = put("/limit-group/other", {"maxInFligth": "3"})
        assert (refused.status_code, b"nearest is maxInFlight" in refused.content) == (400, True)
    assert weights.read_weights(Consumer.objects.get()) == {"a": 3}
    assert LimitGroup.objects.count() == 1


def test_a_list_of_weights_names_its_next_page(
    orders: Any, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.api.broker.key_weights.PAGE", 2)
    path = "/channel/orders/consumer/k"
    manager.put(path, callbackUrl=URL, fairByKey="true")
    for key in ("a", "b", "c & d"):
        manager.put(f"{path}/weights", key=key, weight="2")
    first = manager.get(f"{path}/weights").json()
    last = manager.get(first["Next"]).json()
    assert [row["Key"] for row in first["Result"] + last["Result"]] == ["a", "b", "c & d"]
    assert last["Next"] is None


@pytest.mark.parametrize("weight", ["", "0", "1001", "-1", "two", "1.5"])
def test_a_weight_that_cannot_work_is_refused(weight: str, orders: Any, manager: Manager) -> None:
    path = "/channel/orders/consumer/k"
    manager.put(path, callbackUrl=URL, fairByKey="true")
    refused = manager.put(f"{path}/weights", key="a", weight=weight)
    assert (refused.status_code, b"from 1 to 1000" in refused.content) == (400, True)
    assert manager.put(f"{path}/weights", key="a" * 256, weight="2").status_code == 400
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"ratePerKey": "true"}, "It needs a rate"),
        ({"fairByKey": "yes"}, "fairByKey must be true or false, not 'yes'"),
        ({"maxInFlightPerKey": "0"}, "at least 1; to stop claims, pause the consumer"),
        (
            {"maxInFlightPerKey": "x"},
            "maxInFlightPerKey must be a whole number of at most 9 digits",
        ),
    ],
)
def test_limits_by_key_that_cannot_work_are_refused(
    fields: dict[str, str], problem: str, orders: Any, manager: Manager
) -> None:
    answer = manager.put("/channel/orders/consumer/k", callbackUrl=URL, **fields)
    assert (answer.status_code, problem in answer.content.decode()) == (400, True)
    assert not Consumer.objects.exists()


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"rateWindow": "true"}, "A window needs a rate"),
        ({"rate": "1/s", "rateWindow": "yes"}, "rateWindow must be true or false, not 'yes'"),
        ({"rate": "1/s", "rateWindow": "true", "rateBurst": "2"}, "A window has no burst"),
        ({"maxInFlight": "0"}, "maxInFlight must be at least 1; to stop claims, pause"),
        ({"maxInFlight": "2147483648"}, "at most 9 digits, not '2147483648'"),
        ({"maxInFlight": "-1"}, "must be a whole number of at most 9 digits, not '-1'"),
    ],
)
def test_limits_that_cannot_work_are_refused_for_consumers_and_groups(
    fields: dict[str, str], problem: str, orders: Any, manager: Manager
) -> None:
    for path, url in (("/channel/orders/consumer/k", {"callbackUrl": URL}), ("/limit-group/x", {})):
        answer = manager.put(path, **url, **fields)
        assert (answer.status_code, problem in answer.content.decode()) == (400, True)
    assert not Consumer.objects.exists()
    assert not LimitGroup.objects.exists()


def test_a_consumer_is_put_only_into_a_group_that_exists(orders: Any, manager: Manager) -> None:
    answer = manager.put("/channel/orders/consumer/k", callbackUrl=URL, limitGroup="stripe")
    assert "There is no limit group 'stripe': create it first" in answer.content.decode()


def test_a_group_is_made_changed_listed_and_deleted(orders: Any, manager: Manager) -> None:
    path, member = "/limit-group/stripe-api", "/channel/orders/consumer/k"
    made = manager.put(path, rate="100/s", maxInFlight="20").json()
    assert (made["ID"], made["Rate"], made["MaxInFlight"]) == ("stripe-api", "100/s", 20)
    for wrong in ({"burst": 1}, {"rate": 5}, {"max_in_flight": "many"}):
        with pytest.raises(InvalidRegistration, match=r"has no limit burst|must be of type"):
            registering.put_limit_group("stripe-api", wrong)
    name: Any
    for name in ("a/b", "\ud800", [], None):
        with pytest.raises(InvalidRegistration, match="The id must have 1 to 255 characters"):
            registering.put_limit_group(name, {})
    changed = manager.put_json(path, {"rateBurst": "7"}).json()
    assert (changed["Rate"], changed["RateBurst"], changed["ConsumerURLs"]) == ("100/s", 7, [])
    manager.put(member, callbackUrl=URL, limitGroup="stripe-api")
    assert manager.get(path).json()["ConsumerURLs"] == [member]
    assert [group["ID"] for group in manager.get("/limit-groups").json()["Result"]] == [
        "stripe-api"
    ]
    assert manager.delete(path).status_code == 409
    manager.put(member, manager.get(member), callbackUrl=URL, limitGroup="")
    assert manager.delete(path).status_code == 204
    assert manager.get(path).status_code == 404


def test_a_group_of_deleted_consumers_is_deleted(orders: Any, manager: Manager) -> None:
    """A DELETE removes a limit group whose consumers are all deleted: no request shows them."""
    group, member = "/limit-group/stripe-api", "/channel/orders/consumer/k"
    manager.put(group, rate="100/s")
    manager.put(member, callbackUrl=URL, limitGroup="stripe-api")
    assert manager.delete(member, manager.get(member)).status_code == 204
    assert manager.delete(group).status_code == 204


@pytest.mark.django_db(transaction=True)
def test_a_group_that_another_caller_makes_at_the_same_moment_is_changed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lock = registering._lock_group

    def lock_too_early(name: str) -> LimitGroup | None:
        group = lock(name)
        if group is None:
            at_once(1, lambda _number: LimitGroup.objects.create(name=name))
        return group

    monkeypatch.setattr(registering, "_lock_group", lock_too_early)
    group, change = registering.put_limit_group("stripe-api", {"rate": "5/s"})
    assert (group.rate, change) == ("5/s", registering.Change.CHANGED)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_atomic", [False, True])
def test_a_group_that_gets_a_consumer_at_the_last_moment_stays(
    is_atomic: bool, orders: Any, manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DELETE of the limit group is refused, even if ATOMIC_REQUESTS commits after the view."""
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", is_atomic)
    manager.put("/limit-group/stripe-api", rate="100/s")
    manager.put("/channel/orders/consumer/k", callbackUrl=URL)

    def join(**_signal: Any) -> None:
        at_once(1, lambda _number: Consumer.objects.update(limit_group=LimitGroup.objects.get()))

    pre_delete.connect(join, sender=LimitGroup)
    try:
        refused = manager.delete("/limit-group/stripe-api")
    finally:
        pre_delete.disconnect(join, sender=LimitGroup)
    assert (refused.status_code, b"has consumers" in refused.content) == (409, True)
    assert Consumer.objects.get().limit_group == LimitGroup.objects.get()


def test_a_consumer_with_jobs_stays(manager: Manager) -> None:
    """A DELETE of a consumer with jobs gets 409, which counts them and names the purge."""
    subscription("orders", "k")
    for _ in range(3):
        publish("orders", b"x")
    seen = manager.get("/channel/orders/consumer/k")
    answer = manager.delete("/channel/orders/consumer/k", seen)
    assert answer.status_code == 409
    assert b"3 jobs" in answer.content
    assert b"queued-jobs" in answer.content
    assert manager.get("/channel/orders/consumer/k").status_code == 200


def test_a_count_above_the_cap_says_so(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pulljobs.storage.counts.CAP", 2)
    monkeypatch.setattr("pulljobs.api.broker.resources.CAP", 2)
    subscription("orders", "k")
    path = "/channel/orders/consumer/k"
    for count in (b"1 jobs", b"2 jobs", b"more than 2 jobs", b"more than 2 jobs"):
        publish("orders", b"x")
        assert b"has " + count in manager.delete(path, manager.get(path)).content


def test_a_consumer_goes_when_what_its_409_says_was_done(manager: Manager) -> None:
    """A DELETE of a consumer that has only DEAD jobs deletes them, too, and keeps the archive."""
    path, there = "/channel/orders/consumer/k", subscription("orders", "k")
    theirs = job_in(State.DEAD, subscription("others", "k"))
    job_in(State.DEAD, there)
    held, _waiting = job_in(State.INFLIGHT, there), job_in(State.QUEUED, there)
    seen = manager.get(path)
    assert b"2 jobs" in manager.delete(path, seen).content
    assert manager.delete(f"{path}/queued-jobs").status_code == 200
    kill(held)
    assert manager.delete(path, seen).status_code == 204
    assert list(Job.objects.values_list("id", flat=True)) == [theirs]
    assert ArchivedJob.objects.filter(consumer=there.consumer).count() == 3


def test_a_delete_that_was_cut_off_amid_dead_jobs_can_be_repeated(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A DELETE that failed after some dead jobs can be repeated, and deletes the others."""
    path, there = "/channel/orders/consumer/k", subscription("orders", "k")
    for _ in range(3):
        job_in(State.DEAD, there)
    seen, batches = manager.get(path), iter([dead.delete])

    def delete(*args: Any, **kwargs: Any) -> int:
        for batch in batches:
            return batch(*args, **kwargs)
        raise OperationalError("the connection was cut")

    with monkeypatch.context() as patch:
        patch.setattr("pulljobs.registering.BATCH", 1)
        patch.setattr("pulljobs.storage.dead.delete", delete)
        assert manager.delete(path, seen).status_code == 503
    assert Job.objects.count() == 2
    assert manager.get(path).status_code == 404
    assert manager.delete(path, "x").status_code == 412
    assert manager.delete(path, seen).status_code == 204
    assert not Job.objects.exists()
    assert manager.delete(path, seen).status_code == 404


@pytest.mark.django_db(transaction=True)
def test_writes_that_the_database_refuses_are_answered_with_503(manager: Manager) -> None:
    """A PUT while the database is read-only, as in a failover, gets 503 with Retry-After."""
    with connections[USING].cursor() as cursor:
        cursor.execute("SET default_transaction_read_only = on")
        try:
            answer = manager.put("/channel/new")
        finally:
            cursor.execute("RESET default_transaction_read_only")
    assert answer.status_code == 503
    assert answer.headers["Retry-After"] == "1"


def test_a_transaction_that_the_database_ends_is_answered_with_503() -> None:
    """PostgreSQL's time limits of transactions lead to 503, although they are InternalErrors."""
    cause = errors.IdleInTransactionSessionTimeout("terminating connection")
    error = InternalError(str(cause))
    error.__cause__ = cause
    refusal = refusal_of(error)
    assert refusal is not None
    assert refusal.status_code == 503


def test_live_jobs_of_a_deleted_consumer_are_left_to_the_admin(manager: Manager) -> None:
    path, there = "/channel/orders/consumer/k", subscription("orders", "k")
    job_in(State.DEAD, there)
    job_in(State.QUEUED, there)
    seen = manager.get(path)
    Consumer.objects.update(deleted_at=Now())
    assert manager.delete(path, seen).status_code == 404
    assert Job.objects.count() == 2


def test_deleting_asks_for_what_is_there(orders: Any, manager: Manager) -> None:
    """A DELETE of an unknown consumer or channel is 404."""
    assert manager.delete("/channel/x/consumer/k", "x").status_code == 404
    assert manager.delete("/channel/orders/consumer/x", "x").status_code == 404


# Who may


@pytest.mark.parametrize("url", [*ITEMS, *LISTS])
def test_options_need_no_authentication(url: str, orders: Any) -> None:
    answer = Manager().get(url)
    assert (answer.status_code, answer.content.startswith(b"Log in")) == (401, True)
    assert Manager().put(url).status_code in (401, 403) if url in ITEMS else True


@pytest.mark.parametrize("url", [*ITEMS, *LISTS])
def test_nul_in_a_user_name_matches_no_user(url: str, orders: Any) -> None:
    stranger = Manager()
    stranger.headers = {"Authorization": "Basic " + base64.b64encode(b"a\x00b:x").decode()}
    assert stranger.get(url).status_code == 401


@pytest.mark.parametrize(
    ("verbs", "expected"),
    [
        ((), [403, 403, 403]),
        (("view",), [200, 403, 403]),
        (("view", "change"), [200, 403, 403]),
        (("view", "add", "change"), [200, 200, 403]),
        (("delete",), [403, 403, 204]),
    ],
)
def test_each_verb_needs_its_permission(
    verbs: tuple[str, ...], expected: list[int], orders: Any, manager: Manager
) -> None:
    path = "/channel/orders/consumer/k"
    made = manager.put(path, callbackUrl=URL, token="t")
    user("clerk", *verbs)
    clerk = Manager("clerk")
    assert "view" in verbs or b"pulljobs.view_consumer" in clerk.get(path).content
    got, put = clerk.get(path), clerk.put(path, made, callbackUrl=URL, token="t")
    assert [got.status_code, put.status_code, clerk.delete(path, made).status_code] == [
        *expected[:2],
        expected[2] if put.status_code != 200 else 403,
    ]


@pytest.mark.parametrize(
    ("content_type", "body"),
    [(FORM, b"token=t-1&name=Shop"), ("application/json", b'{"token": "t-1", "name": "Shop"}')],
)
def test_a_compressed_body_is_read(content_type: str, body: bytes, manager: Manager) -> None:
    """Fields in gzip are read. They are 413 if too large unpacked, and 400 if they are no gzip."""
    headers = {**manager.headers, "Content-Encoding": "gzip"}
    put: Any = partial(manager.client.put, "/producer/p", content_type=content_type)
    made = put(gzip.compress(body), headers=headers)
    assert (made.status_code, made.json()["Token"], made.json()["Name"]) == (200, "t-1", "Shop")
    large = put(gzip.compress(body + b"&" * 20_000), headers=headers)
    assert (large.status_code, b"send shorter fields" in large.content) == (413, True)
    assert put(body, headers=headers).status_code == 400


@pytest.mark.parametrize("url", ITEMS)
def test_tokens_are_shown_to_those_who_may_change_them(
    url: str, orders: Any, manager: Manager
) -> None:
    if url != "/channel/orders":
        manager.put(url, **fields_of(url, token="secret"))
    user("reader", "view")
    assert manager.get(url).json()["Token"] == "secret"
    assert "Token" not in Manager("reader").get(url).json()
    assert b"secret" not in Manager("reader").get(url).content
