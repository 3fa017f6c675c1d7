"""Other routes of the lease protocol: info, pause, purge, lookup, broadcast-batch, health."""

import gzip
import json
import tracemalloc
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User
from django.db.models.functions import Now
from django.http import HttpResponse
from django.test import Client, override_settings

from pulljobs import ids, pulling
from pulljobs.api.authentication import NAMELESS
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import ArchivedJob, AuditEntry, Consumer, Job, Message, Node, Producer
from pulljobs.storage import jobs
from tests.api.caller import Subscription, claimed_by_worker, kill, publish, subscription
from tests.api.leases.serving import Puller
from tests.factories import USING
from tests.sessions import contents, query

ORDERS = "/channel/orders"
CENSUS = f"{ORDERS}/consumer/census"


@pytest.fixture
def operator(db: None) -> Client:
    user = User.objects.create_user("ops")
    codenames = ["change_consumer", "delete_job"]
    user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
    client = Client()
    client.force_login(user)
    return client


@pytest.fixture
def tokens(census: Subscription) -> dict[str, str]:
    return {
        "X-Broker-Channel-Token": census.channel_token,
        "X-Broker-Consumer-Token": census.consumer_token,
    }


def info(tokens: dict[str, str]) -> Any:
    return Client().get(f"{CENSUS}/info", headers=tokens).json()


def test_the_counts_add_up(census: Subscription, tokens: dict[str, str]) -> None:
    """`/info` counts jobs by state, and its counts add up to all live jobs of the consumer."""
    for _ in range(5):
        publish()
    claim = pulling.Puller(USING, census.consumer).claim(2)
    assert claim.taken is not None
    held = Held(claim.jobs[0][0].id, claim.taken.lease_token)
    pulling.finish([outcomes.retry(held, "later", after=timedelta(seconds=60))])
    kill(publish())
    shown = info(tokens)
    counts = {name: shown[name] for name in ("NumQueued", "NumDelayed", "NumInFlight", "NumDead")}
    assert counts == {"NumQueued": 3, "NumDelayed": 1, "NumInFlight": 1, "NumDead": 1}
    assert sum(counts.values()) + shown["NumBlocked"] == Job.objects.count()
    assert shown["OldestQueuedSeconds"] >= 0
    lowest = Job.objects.exclude(state="DEAD").order_by("id")[0].id
    assert shown["AckFloor"] == ids.encode(lowest - 1)
    assert (shown["Capped"], shown["Paused"], shown["PauseUntil"]) == (False, False, None)


def test_info_of_what_was_delivered_and_came_again(
    census: Subscription, tokens: dict[str, str]
) -> None:
    """`/info` counts delivered and repeatedly claimed jobs. All jobs up to AckFloor have ended."""
    assert info(tokens)["AckFloor"] is None
    first = claimed_by_worker(census, publish())
    pulling.finish([outcomes.deliver(first)])
    again = publish()
    for _ in range(2):
        held = claimed_by_worker(census, again)
        pulling.finish([outcomes.retry(held, "again", after=timedelta())])
    claimed_by_worker(census, again)
    shown = info(tokens)
    assert (shown["Delivered"], shown["NumRedelivered"]) == (1, 1)
    pulling.finish([outcomes.deliver(claimed) for claimed in [_held(again)]])
    assert info(tokens)["AckFloor"] == ids.encode(again)


def test_info_of_jobs_behind_their_key(census: Subscription, tokens: dict[str, str]) -> None:
    Consumer.objects.update(exclusive_keys=True)
    census.consumer.refresh_from_db()
    for _ in range(3):
        publish(key="k")
    pulling.Puller(USING, census.consumer).claim(10)
    shown = info(tokens)
    live = [shown[name] for name in ("NumQueued", "NumDelayed", "NumBlocked", "NumInFlight")]
    assert (sum(live), shown["NumInFlight"]) == (3, 1)


def test_info_counts_up_to_ten_thousand(census: Subscription, tokens: dict[str, str]) -> None:
    for count, queued, capped in ((9_999, 9_999, False), (2, 10_000, True)):
        query(
            "INSERT INTO pulljobs_job (consumer_id, message_id, available_at, priority, state,"
            " retry_count, deliveries) SELECT %s, %s * 100000 + number, now(), 0, 'QUEUED', 0, 0"
            " FROM generate_series(1, %s) AS number",
            [census.consumer.pk, count, count],
        )
        shown = info(tokens)
        assert (shown["NumQueued"], shown["Capped"]) == (queued, capped)
        assert (shown["AckFloor"] is None) == capped


def test_info_tells_the_limits(tokens: dict[str, str]) -> None:
    """The answer of `/info` has the limits of the consumer and of the server."""
    shown = info(tokens)
    limits = {
        "MaxBatch": 100,
        "MaxExpires": 60,
        "MaxInFlight": None,
        "Rate": None,
        "RateBurst": None,
        "MaxWaiting": 512,
        "MaxPayloadBytes": 1024 * 1024,
        "LeaseSeconds": 30,
        "MaxLeaseSeconds": 900,
        "MaxRetries": 5,
        "MaxDeliveries": 20,
        "RetryDelays": [5, 30, 60],
    }
    assert limits.items() <= shown.items()
    assert shown["Now"].endswith("Z")


def test_info_says_how_many_wait(puller: Puller) -> None:
    """NumWaiting of `/info` is the number of long polls."""
    waits = puller.long_poll()
    assert puller.info()["NumWaiting"] == 1
    publish()
    waits.result()


def test_pause(operator: Client, census: Subscription, tokens: dict[str, str]) -> None:
    """A pause stops claims until a time. With null, or with a past time, it is a resumption."""
    publish()
    paused = _post(operator, "pause", Until="2999-01-31T12:00:00+01:00")
    assert paused.json() == {"PauseUntil": "2999-01-31T11:00:00Z"}  # type: ignore[attr-defined]  # of the test client
    assert info(tokens)["PauseUntil"] == "2999-01-31T11:00:00Z"
    assert info(tokens)["Paused"]
    assert not pulling.Puller(USING, census.consumer).claim(1).jobs
    for resume in ({"Until": None}, {"until": "2000-01-01T00:00:00Z"}):
        _post(operator, "pause", Until="2999-01-31T12:00:00Z")
        assert _post(operator, "pause", **resume).status_code == 200
        assert not info(tokens)["Paused"]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "Until must be null or a time"),
        (b"{}", "Until must be null or a time"),
        (b'{"Untill": "2999-01-31T12:00:00Z"}', "no field 'untill' (the nearest is Until)"),
        (b'{"Until": null, "Seconds": 5}', "no field 'seconds' (the fields are Until)"),
    ],
)
def test_a_pause_without_its_field_does_not_resume(
    body: bytes, problem: str, operator: Client, census: Subscription, tokens: dict[str, str]
) -> None:
    _post(operator, "pause", Until="2999-01-31T12:00:00Z")
    answer = operator.post(f"{CENSUS}/pause", body, "application/json")
    assert (answer.status_code, problem in answer.json()["detail"]) == (400, True)
    assert info(tokens)["Paused"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"Until": "tomorrow"}, 400, "bad_body"),
        ({"Until": "2999-01-31T12:00:00"}, 400, "bad_body"),
        ({"Until": "9999-12-31T23:59:59Z"}, 400, "bad_body"),
        ({"Until": "0001-01-01T00:00:00Z"}, 400, "bad_body"),
        ({"Until": 5}, 400, "bad_body"),
        ({"Until": "x" * 2000}, 413, "body_too_large"),
    ],
)
def test_pauses_that_are_refused(
    body: dict[str, Any], status: int, code: str, operator: Client, census: Subscription
) -> None:
    """An invalid end of a pause is refused with a code, and the consumer is not paused."""
    answer = _post(operator, "pause", **body)
    assert (answer.status_code, answer.json()["code"]) == (status, code)  # type: ignore[attr-defined]  # of the test client
    assert answer["Content-Type"] == "application/problem+json"
    assert Consumer.objects.get().paused_until is None


def test_operators_need_the_permission(census: Subscription, tokens: dict[str, str]) -> None:
    """Pauses and purges are refused with a consumer's tokens and to users without permission."""
    publish()
    stranger = Client()
    stranger.force_login(User.objects.create_user("nobody"))
    before = contents()
    for client in (Client(), stranger):
        for answer in (
            client.post(f"{CENSUS}/pause", b"{}", "application/json", headers=tokens),
            client.delete(f"{CENSUS}/queued-jobs", headers=tokens),
        ):
            assert answer.status_code in (401, 403)
            assert answer["Content-Type"] == "application/problem+json"
    assert contents() == before


def test_purge(operator: Client, census: Subscription, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge makes queued jobs DEAD with the reason "purged", in batches. Jobs in flight stay."""
    monkeypatch.setattr("pulljobs.operating.BATCH", 2)
    held = claimed_by_worker(census, publish())
    for number in range(5):
        publish(priority=number % 2, delay=timedelta(hours=number // 4))
    answer = operator.delete(f"{CENSUS}/queued-jobs")
    assert answer.json() == {"Purged": 5}
    assert set(Job.objects.exclude(id=held.job_id).values_list("state", "reason")) == {
        ("DEAD", "purged")
    }
    assert ArchivedJob.objects.filter(reason="purged").count() == 5
    assert Job.objects.get(id=held.job_id).state == "INFLIGHT"
    assert operator.delete(f"{CENSUS}/queued-jobs").json() == {"Purged": 0}


def test_purge_of_what_waits_behind_keys(operator: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """A purge also ends blocked jobs, in several batches, and leaves only the job in flight."""
    monkeypatch.setattr("pulljobs.operating.BATCH", 2)
    consumer = subscription("orders", "census", exclusive_keys=True).consumer
    for number in range(12):
        publish(key=f"k{number % 2}", priority=number // 6, delay=timedelta(hours=number // 10))
    [(held, _message)] = pulling.Puller(USING, consumer).claim(1).jobs
    assert Job.objects.filter(available_at=None).exists()
    assert operator.delete(f"{CENSUS}/queued-jobs").json() == {"Purged": 11}
    assert list(Job.objects.exclude(state="DEAD").values_list("id", flat=True)) == [held.id]


def test_a_purge_that_is_cut_off_is_in_the_audit_trail_as_far_as_it_came(
    operator: Client, census: Subscription, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.operating.BATCH", 2)
    for _ in range(5):
        publish()
    left = [jobs.kill]

    def kill(*args: Any, **options: Any) -> dict[int, bool]:
        return left.pop()(*args, **options)

    monkeypatch.setattr(jobs, "kill", kill)
    with pytest.raises(IndexError):
        operator.delete(f"{CENSUS}/queued-jobs")
    entry = AuditEntry.objects.get()
    assert (entry.act, entry.done, entry.finished_at is None) == ("kill", 2, False)


def test_who_paused_and_purged_is_in_the_audit_trail(
    operator: Client, census: Subscription
) -> None:
    """Audit entries of pauses and purges name the user, or the nameless client of open access."""
    for _ in range(3):
        publish()
    subject = "consumer orders/census"
    _post(operator, "pause", Until="2999-01-31T12:00:00Z")
    _post(operator, "pause", Until=None)
    operator.delete(f"{CENSUS}/queued-jobs")
    with override_settings(PULLJOBS={"API_ACCESS": "open"}):
        assert _post(Client(), "pause", Until=None).status_code == 200
        assert Client().delete(f"{CENSUS}/queued-jobs").status_code == 200
    entries = AuditEntry.objects.filter(finished_at__isnull=False).order_by("pk")
    assert list(entries.values_list("by", "act", "subject", "done")) == [
        ("ops", "pause", subject, 1),
        ("ops", "resume", subject, 1),
        ("ops", "kill", f"all queued jobs of {subject}, purged", 3),
        (NAMELESS, "resume", subject, 1),
        (NAMELESS, "kill", f"all queued jobs of {subject}, purged", 0),
    ]
    assert [entry.at is not None for entry in entries] == [True] + [False] * 4


def test_lookup(puller: Puller, tokens: dict[str, str]) -> None:
    """The answer of /lookup has the channel's consumers and the addresses of live API servers."""
    for name, how in (
        ("http://live/", {}),
        ("http://silent/", {"heartbeat_at": Now() - timedelta(minutes=5)}),
        ("http://stopped/", {"stopped_at": Now()}),
        ("http://worker/", {"kind": Node.Kind.WORKER}),
    ):
        node = {"kind": Node.Kind.API, "heartbeat_at": Now(), "started_at": Now(), **how}
        Node.objects.create(name=name, address=name, **node)
    answer = puller._client.get(f"{puller.base}/lookup?channel=orders", headers=puller.tokens)
    assert answer.json() == {
        "Addresses": sorted(["http://live/", f"{puller.base}/"]),
        "Consumers": [{"ID": "census", "Name": "census", "Type": "pull"}],
    }
    wrong = {"X-Broker-Channel-Token": "guessed"}
    assert Client().get("/lookup?channel=orders", headers=wrong).status_code == 403
    assert Client().get("/lookup", headers=tokens).status_code == 404


def test_a_batch_of_messages(census: Subscription, tokens: dict[str, str]) -> None:
    """Lines of a batch are published with their fields although others are duplicate or invalid."""
    lines = [
        {
            "Payload": "ä",
            "MessageID": "m1",
            "Priority": 5,
            "Key": "k",
            "Headers": {"a": "b"},
            "Cost": 4,
        },
        {"PayloadBase64": "/wA=", "ContentType": "image/png"},
        {"Payload": "again", "MessageID": "m1"},
        {"Payload": ""},
        {"Payload": "x", "PayloadBase64": "eA=="},
        {"PayloadBase64": "?"},
        {"Payload": "x", "Priority": "high"},
        {"Payload": "x" * (1024 * 1024 + 1)},
    ]
    body = b"\n".join(json.dumps(line).encode() for line in lines) + b"\n\n{\n"
    answer = _batch(tokens, body)
    results = answer.json()["Results"]  # type: ignore[attr-defined]  # of the test client
    assert [(result["Line"], result["Status"]) for result in results] == [
        (1, "accepted"),
        (2, "accepted"),
        (3, "duplicate"),
        (4, "invalid"),
        (5, "invalid"),
        (6, "invalid"),
        (7, "invalid"),
        (8, "too_large"),
        (10, "invalid"),
    ]
    assert all(
        ("Error" in result) == (result["Status"] in ("invalid", "too_large")) for result in results
    )
    assert results[-1]["Error"] == "The line is not JSON: send one JSON object a line."
    text, image = Message.objects.order_by("id")
    assert (bytes(text.payload).decode(), text.priority, text.key) == ("ä", 5, "k")
    assert (text.headers, text.client_message_id) == ({"a": "b"}, "m1")
    assert set(Job.objects.values_list("message_id", "cost")) >= {(text.pk, 4), (image.pk, None)}
    assert (bytes(image.payload), image.content_type) == (b"\xff\x00", "image/png")
    assert [result["MessageID"] for result in results[:2]] == ["m1", ids.encode(image.id)]
    assert Job.objects.count() == 2


@pytest.mark.parametrize("headers", [[], 0, False, ""])
def test_headers_of_a_line_are_an_object_or_none(
    headers: object, census: Subscription, tokens: dict[str, str]
) -> None:
    """In a batch, Headers may be missing, null or an object. Anything else is invalid."""
    lines = [{"Payload": "x", "Headers": given} for given in (headers, None, {})]
    answer = _batch(tokens, b"\n".join(json.dumps(line).encode() for line in lines))
    results = answer.json()["Results"]  # type: ignore[attr-defined]  # of the test client
    assert [result["Status"] for result in results] == ["invalid", "accepted", "accepted"]


def test_a_misspelt_field_of_a_line_is_named(census: Subscription, tokens: dict[str, str]) -> None:
    """A line with a misspelt field is invalid, and its error names the nearest field."""
    answer = _batch(tokens, b'{"Payload": "x", "Prioritiy": 9}\n{"PAYLOAD": "y", "Key": null}')
    misspelt, published = answer.json()["Results"]  # type: ignore[attr-defined]  # of the test client
    assert "no field 'prioritiy' (the nearest is Priority)" in misspelt["Error"]
    assert (misspelt["Status"], published["Status"]) == ("invalid", "accepted")
    assert Message.objects.count() == 1


def test_a_line_names_the_jobs_whose_message_it_replaces(
    census: Subscription, tokens: dict[str, str]
) -> None:
    Consumer.objects.update(max_queued_per_key=1, key_overflow="replace")
    answer = _batch(tokens, b'{"Payload": "x", "Key": "k"}\n{"Payload": "y", "Key": "k"}')
    first, second = answer.json()["Results"]  # type: ignore[attr-defined]  # of the test client
    assert "ReplacedJobs" not in first
    assert second["ReplacedJobs"] == [ids.encode(Job.objects.get().pk)]


def test_batches_that_are_refused(census: Subscription, tokens: dict[str, str]) -> None:
    """A batch with too many lines or bytes gets 413, and one with a wrong token 403."""
    assert _batch(tokens, b'{"Payload": "x"}\n' * 101).status_code == 413
    too_large = _batch(tokens, b"x" * (8 * 1024 * 1024 + 1))
    assert too_large.status_code == 413
    assert "raise PULLJOBS['MAX_BATCH_BYTES']" in too_large.json()["detail"]  # type: ignore[attr-defined]  # of the test client
    assert _batch({**tokens, "X-Broker-Channel-Token": "x"}, b"").status_code == 403
    assert _batch(tokens, b"").json() == {"Results": []}  # type: ignore[attr-defined]  # the client adds to it
    assert not Message.objects.exists()


def test_a_batch_of_empty_lines_takes_no_more_memory_than_its_body(
    census: Subscription, tokens: dict[str, str]
) -> None:
    """Empty lines, 8 MiB in a few kilobytes of gzip, are read with less than 32 MiB of memory."""
    body = gzip.compress(b"\n" * (8 * 1024 * 1024 - 16) + b'{"Payload": "x"}', 1)
    tracemalloc.start()
    try:
        answer = _batch({**tokens, "Content-Encoding": "gzip"}, body)
        _now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    [result] = answer.json()["Results"]  # type: ignore[attr-defined]  # of the test client
    assert result["Line"] == 8 * 1024 * 1024 - 15
    assert peak < 32 * 1024 * 1024


def test_health(db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both `/livez` and `/readyz` answer "ok". Without applied migrations, `/readyz` is 503."""
    assert Client().get("/livez").json() == {"Status": "ok"}
    assert Client().get("/readyz").json() == {"Status": "ok"}
    monkeypatch.setattr("pulljobs.api.leases.service._applied", set())
    query("DELETE FROM django_migrations WHERE app = 'pulljobs'")
    answer = Client().get("/readyz")
    assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    assert answer.json()["detail"] == "Migrations are not applied: run manage.py migrate."


def test_readiness_names_the_command_that_migrates_a_second_database(
    db: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pulljobs.api.leases.service._applied", set())
    monkeypatch.setattr("pulljobs.storage.schema.DEFAULT_DB_ALIAS", "other")
    query("DELETE FROM django_migrations WHERE app = 'pulljobs'")
    detail = Client().get("/readyz").json()["detail"]
    assert f"run manage.py migrate APP --database {USING} for each of" in detail


def test_a_server_whose_database_refuses_writes_is_not_ready(db: None) -> None:
    """`/readyz` is 503 if the database refuses writes, because each pull and publish would fail."""
    query("SET LOCAL transaction_read_only = on")
    answer = Client().get("/readyz")
    assert (answer.status_code, answer.json()["code"]) == (503, "not_ready")
    assert "refuses writes" in answer.json()["detail"]


def _held(job_id: int) -> Held:
    token = Job.objects.get(id=job_id).lease_token
    assert token is not None
    return Held(job_id, token)


def _post(client: Client, verb: str, **fields: Any) -> HttpResponse:
    return client.post(f"{CENSUS}/{verb}", json.dumps(fields), "application/json")  # type: ignore[return-value]  # the client adds to it


def _batch(tokens: dict[str, str], body: bytes) -> HttpResponse:
    producer, _made = Producer.objects.get_or_create(name="shop")
    token = producer.set_token("shop-token")
    producer.save()
    headers = {"X-Broker-Producer-ID": "shop", "X-Broker-Producer-Token": token}
    return Client().generic(  # type: ignore[return-value]  # the client adds to it
        "POST", f"{ORDERS}/broadcast-batch", body, "application/x-ndjson", headers=tokens | headers
    )
