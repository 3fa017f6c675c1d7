"""Attempts of strangers and of hostile consumers to break a server or to reach foreign data."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client, override_settings
from rest_framework.authtoken.models import Token

from pulljobs import ids
from pulljobs.api import DOCUMENT
from pulljobs.api.broker import queued_jobs
from pulljobs.conf import settings
from pulljobs.models import Job, Message, Node, Producer
from pulljobs.states import State
from tests.api.caller import Subscription, job_in, publish, subscription
from tests.api.leases.serving import close_waiters
from tests.sessions import contents, wait_until

ROUTES = json.loads(DOCUMENT.read_text("utf-8"))["paths"]
OPERATIONS = [(method.upper(), path) for path, item in ROUTES.items() for method in item]
ODD = {
    "nul": "%00",
    "no UTF-8": "%ff%fe",
    "half a surrogate pair": "%ed%a0%80",
    "a line break": "a%0d%0aX-Injected:%20yes",
    "a wildcard": "%25",
    "a quote": "'%22--",
    "the parent": "..%2f..",
    "a smile": "%F0%9F%98%80",
    "long": "x" * 3000,
    "a number": str(2**63),
}
BAD = [
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"Batch": 1e400}',
    b'{"Batch": ' + b"9" * 4_000 + b"}",
    b'{"Expires": NaN}',
    b'{"Expires": -Infinity}',
    b'{"Expires": 1e308}',
    b'{"MaxBytes": 1e309}',
    b'{"RequestID": "\\u0000"}',
    b'{"RequestID": "\\ud800"}',
    b'{"Results": [{"ID": "\\u0000", "LeaseToken": "\\ud800", "Outcome": "DEAD"}]}',
    b'{"Results": [{"ID": {}, "LeaseToken": [], "Outcome": {}}]}',
    b'{"Leases": [{"ID": "x", "LeaseToken": "x"}], "Seconds": 1e-320}',
    b'{"Until": "9999-12-31T23:59:59-23:59"}',
    b'{"Until": "0001-01-01T00:00:00+23:59"}',
    b'{"NextState": "INFLIGHT", "IncrementalTimeout": 1e400}',
    b'{"Payload": "\\ud800"}\n{"Payload": "x", "Key": "\\u0000"}\n{"Payload": 1}\n[]\n{',
    b'{"Payload": "x", "Headers": {"a": "\\u0000"}, "Priority": 1e400}',
    "{}".encode("utf-16"),
    b"\xef\xbb\xbf{}",
    b'{"Channel": "orders", "Cron": "* * * * *", "Payload": "\\ud800"}',
    b'{"Channel": "orders", "Cron": "* * * * *", "Headers": {"a": "\\u0000"}}',
    b'{"Channel": "orders", "Cron": "* * * * *", "Key": "\\ud800"}',
    b'{"Channel": "orders", "EverySeconds": 1e308, "StartsAt": "9999-12-31T23:59:59Z"}',
    b'{"Channel": "orders", "EverySeconds": 1e-320}',
    b'{"Channel": "orders", "Cron": "* * * * *", "StartsAt": "0001-01-01T00:00:00Z"}',
    b'{"From": "0001-01-01T00:00:00Z", "To": "9999-12-31T23:59:59Z"}',
    b'{"type": "pull", "name": "\\ud800"}',
    b'{"type": "pull", "limitGroup": "\\ud800"}',
    b"\x00",
]
FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


@pytest.fixture
def census(transactional_db: None) -> Iterator[Subscription]:
    yield subscription("orders", "census")
    close_waiters()


@pytest.fixture
def headers(census: Subscription) -> dict[str, str]:
    """Return headers with the tokens of a superuser, a channel, its consumer and a producer."""
    producer = Producer(name="shop")
    producer.set_token("shop-token")
    producer.save()
    user = get_user_model().objects.create_superuser("root")
    return {
        "Authorization": f"Token {Token.objects.create(user=user).key}",
        "X-Broker-Channel-Token": census.channel_token,
        "X-Broker-Consumer-Token": census.consumer_token,
        "X-Broker-Producer-ID": "shop",
        "X-Broker-Producer-Token": "shop-token",
    }


def send(method: str, url: str, body: bytes, headers: dict[str, str], type: str = FORM) -> Any:
    return Client(raise_request_exception=False).generic(method, url, body, type, headers=headers)


def test_odd_names_in_a_url_match_no_row(headers: dict[str, str]) -> None:
    """Every operation gets names with NUL, quotes, line breaks and so on: no write and no 5xx."""
    before = contents()
    good = {"channel": "orders", "consumer": "census"}
    for method, path in OPERATIONS:
        names = ["channel", "consumer", "producer", "job", "message", "schedule"]
        for odd_name in (name for name in names if f"{{{name}}}" in path):
            for what, text in ODD.items():
                url = path
                for name in names:
                    chosen = text if name == odd_name else good.get(name, "nobody")
                    url = url.replace(f"{{{name}}}", chosen)
                answer = send(method, url, b"", headers)
                assert answer.status_code in range(200, 500), (method, path, what)
                assert "X-Injected" not in answer.headers
    assert contents() == before


def test_bad_json_is_never_a_500(headers: dict[str, str]) -> None:
    job, root = ids.encode(publish()), "/channel/orders/consumer/census"
    for body in BAD:
        for url in ("pull", "ack", "renew", "pause", f"job/{job}"):
            answer = send("POST", f"{root}/{url}", body, headers, JSON)
            assert answer.status_code < 500, (url, body[:50])
        for method, url in (("PUT", ""), ("POST", "/pause"), ("POST", "/backfill")):
            answer = send(method, f"/schedule/daily{url}", body, headers, JSON)
            assert answer.status_code < 500, (url, body[:50])
        for url in ("/channel/new", "/channel/orders/consumer/new", "/limit-group/new"):
            assert send("PUT", url, body, headers, JSON).status_code < 500, (url, body[:50])
        batch = send("POST", "/channel/orders/broadcast-batch", body, headers, JSON)
        assert batch.status_code < 500, body[:50]


def test_no_body_is_read_beyond_its_limit(headers: dict[str, str]) -> None:
    """A body that is a byte too long is refused, so that no client fills the memory of a server."""
    job = ids.encode(publish())
    limits = {
        "/channel/orders/broadcast": 1024 * 1024,
        "/channel/orders/broadcast-batch": 8 * 1024 * 1024,
        "/channel/orders/consumer/census/pull": 16 * 1024,
        "/channel/orders/consumer/census/ack": 2 * 1024 * 1024 + 3 * settings().MAX_RESULT_BYTES,
        "/channel/orders/consumer/census/renew": 256 * 1024,
        "/channel/orders/consumer/census/pause": 16 * 1024,
        f"/channel/orders/consumer/census/job/{job}": 16 * 1024,
        "/channel/orders/consumer/census/dlq": 16 * 1024,
    }
    for url, limit in limits.items():
        body = b"x" * (limit + 1)
        assert send("POST", url, body, headers).status_code == 413, url
    assert send("PUT", "/channel/new", b"x" * 20_000, headers).status_code == 413
    large = b"x" * (8 * 1024 * 1024 + 1)
    assert send("PUT", "/schedule/new", large, headers).status_code == 413
    assert send("POST", "/schedule/new/pause", b"x" * 2_000, headers).status_code == 413


def test_headers_of_a_message_can_t_break_those_of_an_answer(
    headers: dict[str, str], census: Subscription
) -> None:
    id = "a\u2028b\u00e9 ?#%"
    sent = {"X-Broker-Message-ID": id, "X-Broker-Metadata-Headers": "X-A", "X-A": "\u00e9;\t=1"}
    made = send("POST", "/channel/orders/broadcast", b"x", headers | sent)
    assert made.status_code == 201
    assert made["Location"].isascii()
    assert made["Location"].isprintable()
    shown = send("GET", made["Location"], b"", headers)
    assert (shown.status_code, shown.json()["ID"]) == (200, id)


def test_nothing_logs_tokens_or_payloads(
    headers: dict[str, str], census: Subscription, caplog: pytest.LogCaptureFixture
) -> None:
    """Log lines of requests have no token and no payload. Django's log of SQL is not checked."""
    secrets = [census.channel_token, census.consumer_token, "shop-token", "the-payload"]
    logging.getLogger("django.db.backends").propagate = False
    try:
        with caplog.at_level(logging.DEBUG):
            _do_all(headers)
    finally:
        logging.getLogger("django.db.backends").propagate = True
    lines = [record.getMessage() for record in caplog.records if "django.db" not in record.name]
    assert lines
    assert not [line for line in lines for secret in secrets if secret in line]


def _do_all(headers: dict[str, str]) -> None:
    root = "/channel/orders/consumer/census"
    send("POST", "/channel/orders/broadcast", b"the-payload", headers)
    [pulled] = send("POST", f"{root}/pull", b"", headers, JSON).json()["Result"]
    lost = {"ID": pulled["ID"], "LeaseToken": str(Node().pk), "Outcome": "DELIVERED"}
    send("POST", f"{root}/ack", json.dumps({"Results": [lost]}).encode(), headers, JSON)
    send("GET", f"{root}/queued-jobs", b"", headers | {"X-Broker-Consumer-Token": "shop-token"})
    send("POST", f"{root}/dlq", b"requeue=shop-token", headers)
    with pytest.MonkeyPatch.context() as patch, override_settings(DEBUG=False):
        patch.setattr(queued_jobs, "read_limit", _broken)
        assert send("GET", f"{root}/queued-jobs", b"", headers).status_code == 500


def _broken(request: object) -> None:
    raise RuntimeError("broken on purpose")


def test_a_page_of_an_error_has_no_secrets(
    headers: dict[str, str], census: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queued_jobs, "read_limit", _broken)
    with override_settings(DEBUG=False):
        answer = send("GET", "/channel/orders/consumer/census/queued-jobs", b"", headers)
    assert answer.status_code == 500
    for secret in (census.channel_token, census.consumer_token, "broken on purpose", "Traceback"):
        assert secret not in answer.content.decode()


def test_a_job_is_out_of_reach_for_every_other_consumer(headers: dict[str, str]) -> None:
    """A consumer of the same name in another channel can't reach a job, even by its lease token."""
    stranger = subscription("invoices", "census")
    job_id = job_in(State.INFLIGHT, stranger)
    token = str(Job.objects.get(pk=job_id).lease_token)
    xid, before = ids.encode(job_id), contents()
    root = "/channel/orders/consumer/census"
    outcome = {"ID": xid, "LeaseToken": token}
    acked = send(
        "POST",
        f"{root}/ack",
        json.dumps({"Results": [{**outcome, "Outcome": "DELIVERED"}]}).encode(),
        headers,
        JSON,
    )
    assert [result["Status"] for result in acked.json()["Results"]] == ["not_found"]
    renewed = send(
        "POST", f"{root}/renew", json.dumps({"Leases": [outcome]}).encode(), headers, JSON
    )
    assert [result["Status"] for result in renewed.json()["Results"]] == ["not_found"]
    fence = headers | {"X-Broker-Lease-Token": token}
    body = b'{"NextState": "DELIVERED"}'
    assert send("POST", f"{root}/job/{xid}", body, fence, JSON).status_code == 401
    assert send("GET", f"{root}/job/{xid}", b"", headers).status_code == 401
    assert send("DELETE", f"{root}/job/{xid}", b"", headers).status_code == 404
    assert send("POST", f"{root}/job/{xid}/requeue-dead-job", b"", headers).status_code == 401
    assert contents() == before


@override_settings(ALLOWED_HOSTS=["*"])
def test_a_stranger_does_not_say_where_others_shall_go(
    headers: dict[str, str], census: Subscription
) -> None:
    """The Host header of a request without tokens is never returned as an address by /lookup."""
    evil = {"Host": "evil.example"}
    url = "/channel/orders/consumer/census/pull"
    assert send("POST", url, b"", evil).status_code == 403
    assert send("POST", url, b"", headers | {"Host": "good.example"}).status_code == 200
    wait_until(lambda: Node.objects.exclude(address="").exists())
    assert not Node.objects.filter(address__contains="evil").exists()
    answer = send("GET", "/lookup?channel=orders", b"", headers | {"Host": "good.example"})
    assert answer.json()["Addresses"] == ["http://good.example/"]


def test_an_invalid_port_is_not_passed_on_to_clients(
    headers: dict[str, str], census: Subscription
) -> None:
    """A Host header with an invalid port, which Django accepts, sets no address for /lookup."""
    url = "/channel/orders/consumer/census/pull"
    for host in ("testserver:99999", "testserver:0", "testserver:8000"):
        assert send("POST", url, b"", headers | {"Host": host}).status_code == 200
    wait_until(lambda: Node.objects.exclude(address="").exists())
    assert [node.address for node in Node.objects.all()] == ["http://testserver:8000/"]


def test_a_message_of_another_channel_is_not_found(headers: dict[str, str]) -> None:
    publish(message_id="mine")
    subscription("invoices", "census")
    assert send("GET", "/channel/invoices/message/mine", b"", headers).status_code == 404
    by_row = ids.encode(Message.objects.get().pk)
    assert send("GET", f"/channel/invoices/message/{by_row}", b"", headers).status_code == 404
