"""Jobs that a pull takes, and the time that it waits for them."""

import asyncio
import json
import time
from datetime import timedelta
from typing import Any, cast

import httpx
import pytest
from django.db.models.functions import Now

from pulljobs import ids, operating, pulling
from pulljobs.api.bodies import render_stored_time, render_time
from pulljobs.api.exceptions import RefusedRequest
from pulljobs.api.leases.bodies import PulledJobBody
from pulljobs.api.leases.encoding import encode_answer
from pulljobs.api.leases.long_poll import waiters
from pulljobs.api.leases.long_poll.pending import PendingPull, PullRequest
from pulljobs.api.leases.long_poll.queue import WaiterQueue
from pulljobs.engine.encodings import EPOCH, encode_timestamp
from pulljobs.models import Consumer, Job, Lease, PullWaiter
from pulljobs.publishing import publish_many
from pulljobs.storage.throttles import throttle
from tests.api.caller import Subscription, publish, subscription
from tests.api.leases.serving import LONG, Puller, outcome_of, wait_briefly, waiting, waiting_pulls
from tests.factories import USING
from tests.sessions import SLACK, contents, pass_time, query, wait_until

REFUSED = [
    (b'{"Batch": 101}', 409, "exceeded_max_Batch", "100"),
    (b'{"Expires": 60.5}', 409, "exceeded_max_Expires", "60"),
    (b'{"Batch": 0}', 400, "bad_body", "Batch"),
    (b'{"Batch": -1}', 400, "bad_body", "Batch"),
    (b'{"Batch": 1.0}', 400, "bad_body", "Batch"),
    (b'{"Batch": "1"}', 400, "bad_body", "Batch"),
    (b'{"Batch": true}', 400, "bad_body", "Batch"),
    (b'{"Expires": -1}', 400, "bad_body", "Expires"),
    (b'{"Expires": "1"}', 400, "bad_body", "Expires"),
    (b'{"Expires": NaN}', 400, "bad_body", "JSON"),
    (b'{"Expires": 1e400}', 400, "bad_body", "Expires"),
    (b'{"Expires": 1' + b"0" * 400 + b"}", 400, "bad_body", "Expires"),
    (b'{"NoWait": 1}', 400, "bad_body", "NoWait"),
    (b'{"MaxBytes": -1}', 400, "bad_body", "MaxBytes"),
    (b'{"RequestID": 1}', 400, "bad_body", "RequestID"),
    (b'{"RequestID": "\\u0000"}', 400, "bad_body", "RequestID"),
    (b'{"RequestID": "\\ud800"}', 400, "bad_body", "RequestID"),
    (b'{"IncrementalTimeout": 0.5}', 400, "bad_body", "IncrementalTimeout"),
    (b'{"IncrementalTimeout": 100000000}', 400, "bad_body", "IncrementalTimeout"),
    (b"[]", 400, "bad_body", "object"),
    (b"{", 400, "bad_body", "JSON"),
    (b"\xff", 400, "bad_body", "JSON"),
    (b" " * 20_000 + b"{}", 413, "body_too_large", "16384"),
]

JOB: PulledJobBody = {
    "ID": "0ds3v5rd50sg2b4o0010",
    "Priority": -1,
    "RetryCount": 0,
    "Deliveries": 1,
    "Key": None,
    "LeaseToken": "45a7b6a0-0000-4000-8000-000000000000",
    "LeaseExpiresAt": "2030-01-31T12:00:00Z",
    "LeaseSeconds": 30.0,
    "Message": {
        "MessageID": "m",
        "PayloadEncoding": None,
        "Payload": "x" * 100,
        "ContentType": "application/json",
        "Headers": {},
        "PublishedAt": "2030-01-31T12:00:00.000001Z",
    },
}


def test_what_a_job_looks_like(puller: Puller) -> None:
    """A pulled job and its message have exactly the documented fields. The answer has a status."""
    job_id = publish(
        payload={"id": 17}, priority=3, key="k", message_id="order-17", headers={"a": "b"}
    )
    answer = puller.pull()
    [job] = answer["Result"]
    lease = Lease.objects.get()
    message = job.pop("Message")
    assert job == {
        "ID": ids.encode(job_id),
        "Priority": 3,
        "RetryCount": 0,
        "Deliveries": 1,
        "Key": "k",
        "LeaseToken": str(lease.lease_token),
        "LeaseExpiresAt": lease.leased_until.isoformat().replace("+00:00", "Z"),
        "LeaseSeconds": 30.0,
    }
    assert message.pop("PublishedAt").endswith("Z")
    assert message == {
        "MessageID": "order-17",
        "Payload": '{"id": 17}',
        "PayloadEncoding": None,
        "ContentType": "application/json",
        "Headers": {"a": "b"},
    }
    status = {"Code": 200, "Reason": "ok", "PendingMessages": 0, "PendingBytes": 0}
    assert answer["Status"] == status
    assert lease.via == Lease.Via.PULL


@pytest.mark.parametrize("seconds", [0.0, 0.000001, 0.25, 1.0, -0.5, 1e9, -1e9])
def test_times_of_messages_look_as_all_others(seconds: float) -> None:
    """A time that was stored with a message is rendered like all other times in answers."""
    time = EPOCH + timedelta(seconds=seconds)
    assert render_stored_time(encode_timestamp(time)) == render_time(time)


def test_payloads_that_are_no_text_come_in_base64(puller: Puller) -> None:
    publish(payload=b"\xff\x00")
    [job] = puller.taken()
    assert (job["Message"]["Payload"], job["Message"]["PayloadEncoding"]) == ("/wA=", "base64")


def test_a_large_answer_is_as_a_small_one(puller: Puller) -> None:
    """Large payloads come back unchanged, although their answer is encoded in pieces."""
    payload = "\x01ü" * 300_000
    for _ in range(3):
        publish(payload=payload)
    assert [job["Message"]["Payload"] for job in puller.taken(Batch=3)] == [payload] * 3


def test_an_answer_is_the_json_of_its_body() -> None:
    texts = {"ContentType": 'a"/\\b', "Payload": "\U0001f600<\ud800>", "MessageID": "\u00e4"}
    more = {"PayloadEncoding": "base64", "Headers": {"\u00fc": "\n"}}
    keyed = {**JOB, "Key": "\x00\u00e9", "Message": {**JOB["Message"], **texts, **more}}
    acked = {"Results": [{"ID": '"'}], "Result": [JOB, keyed], "Status": {"Code": 1}}
    bodies: list[Any] = [{"Result": []}, {"Results": []}, acked]
    for body in bodies:
        assert asyncio.run(encode_answer(body)).content == json.dumps(body).encode()


@pytest.mark.parametrize(("jobs", "waits"), [(0, False), (100, False), (20_000, True)])
def test_others_have_the_event_loop_while_a_large_answer_is_written(jobs: int, waits: bool) -> None:
    """An answer of 20,000 jobs is encoded on a thread, and a small one on the event loop itself."""
    answer = {"Result": [JOB] * jobs}

    async def went_on() -> bool:
        writing = asyncio.create_task(encode_answer(answer))
        await asyncio.sleep(0)
        went_on = not writing.done()
        response = await writing
        assert json.loads(response.content) == answer
        assert response["Content-Type"] == "application/json"
        return went_on

    assert asyncio.run(went_on()) == waits


def test_a_large_answer_is_encoded_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large answer is encoded in pieces, between which other threads can run."""
    answer = {"Result": [JOB] * 20_000}
    monkeypatch.delattr(json.JSONEncoder, "encode")
    assert json.loads(asyncio.run(encode_answer(answer)).content) == answer


def test_without_a_body_it_answers_at_once(puller: Puller) -> None:
    """A pull without a body or without Expires does not wait."""
    for body in (b"", b"  ", b"{}"):
        assert puller.post("pull", body).json()["Status"]["Reason"] == "no_messages"


def test_an_empty_queue_and_no_wait_give_an_empty_answer_at_once(puller: Puller) -> None:
    start = time.monotonic()
    answer = puller.pull(NoWait=True, Batch=7)
    assert time.monotonic() - start < LONG / 2
    assert answer == {
        "Result": [],
        "Status": {"Code": 404, "Reason": "no_messages", "PendingMessages": 7, "PendingBytes": 0},
    }


def test_queued_jobs_come_at_once(puller: Puller) -> None:
    published = [ids.encode(publish()) for _ in range(3)]
    answer = puller.pull(Batch=10, NoWait=True)
    assert [job["ID"] for job in answer["Result"]] == published
    assert answer["Status"]["PendingMessages"] == 7


def test_a_long_poll_takes_queued_jobs_at_once(puller: Puller) -> None:
    publish()
    assert len(puller.taken(Batch=10, Expires=LONG)) == 1
    assert waiting() == 0


def test_a_waiting_long_poll_is_woken(puller: Puller) -> None:
    """A publish wakes a long poll, also a second one, when the server listens already."""
    for _poll in range(2):
        polls = puller.long_poll()
        job, published = publish(), time.monotonic()
        [taken] = polls.result().json()["Result"]
        assert time.monotonic() - published < LONG / 2
        assert taken["ID"] == ids.encode(job)


def test_a_client_that_settles_and_pulls_again_changes_no_row_of_waiters(
    puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lower number of waiting pulls is stored in the second pass, as a client may pull again."""
    monkeypatch.setattr(waiters.Waiters, "_maintain", lambda self: asyncio.sleep(0))
    poll = puller.long_poll()
    publish()
    assert poll.result().json()["Result"]
    running, rows = waiters.running_waiters(), []
    assert running is not None
    for _pass in range(2):
        asyncio.run_coroutine_threadsafe(running._keep_counts(), running._loop).result(LONG)
        rows.append(waiting())
    assert rows == [1, 0]


def test_a_long_poll_ends_after_its_time(puller: Puller) -> None:
    start = time.monotonic()
    answer = puller.pull(Expires=0.4, Batch=3)
    assert time.monotonic() - start >= 0.4
    status = {"Code": 408, "Reason": "timeout", "PendingMessages": 3, "PendingBytes": 0}
    assert answer == {"Result": [], "Status": status}


def test_a_pull_without_wait_never_waits(puller: Puller) -> None:
    """NoWait overrides Expires."""
    start = time.monotonic()
    assert puller.pull(NoWait=True, Expires=LONG)["Status"]["Reason"] == "no_messages"
    assert time.monotonic() - start < LONG / 2


def test_a_pull_gives_one_job_unless_it_asks_for_more(puller: Puller) -> None:
    publish()
    publish()
    assert len(puller.taken()) == 1


def test_invalid_bodies_are_refused(puller: Puller) -> None:
    """Each invalid body has its status, code and text in the answer, and nothing changes."""
    publish()
    before = contents()
    for body, status, code, text in REFUSED:
        answer = puller.post("pull", body)
        problem = answer.json()
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert (answer.status_code, problem["status"]) == (status, status), body
        assert problem["code"] == code
        assert text in problem["detail"]
        assert problem.keys() == {"type", "title", "status", "detail", "code"}
    assert contents() == before


def test_unknown_fields_are_ignored(puller: Puller) -> None:
    """Options of NATS that pulljobs lacks are ignored, and known fields may be in any case."""
    publish()
    publish()
    nats = {"idle_heartbeat": 1, "min_pending": 10, "priority": 10, "pin_id": "x", "group": "g"}
    assert len(puller.taken(bAtCh=2, **nats)) == 2


def test_max_bytes_gives_the_jobs_that_fit(puller: Puller) -> None:
    for _ in range(3):
        publish(payload=b"x" * 400)
    answer = puller.pull(Batch=10, MaxBytes=1000)
    assert len(answer["Result"]) == 2
    status = {"Code": 409, "Reason": "max_bytes", "PendingMessages": 8, "PendingBytes": 200}
    assert answer["Status"] == status
    assert Job.objects.get(state="QUEUED").deliveries == 0


@pytest.mark.parametrize("expires", [0, LONG])
def test_a_first_job_above_max_bytes_stays_queued(expires: float, puller: Puller) -> None:
    """A first job above MaxBytes stays queued, and a pull without MaxBytes gets it."""
    publish(payload=b"x" * 5000)
    before = contents("pulljobs_job")
    answer = puller.pull(MaxBytes=1000, Expires=expires)
    assert (answer["Result"], answer["Status"]["Reason"]) == ([], "max_bytes")
    assert contents("pulljobs_job") == before
    assert len(puller.taken()) == 1


def test_a_pull_above_the_limit_of_waiters_is_refused(puller: Puller) -> None:
    """With max_waiting 2 a third long poll gets 429, until one of the others has ended."""
    Consumer.objects.update(max_waiting=2)
    both = [puller.long_poll(), puller.long_poll()]
    refused = puller.post("pull", Expires=LONG)
    assert (refused.status_code, refused.json()["code"]) == (429, "max_waiting")
    assert int(refused.headers["Retry-After"]) > 0
    publish()
    wait_briefly(lambda: waiting_pulls() == 1)
    third = puller.long_poll()
    publish()
    publish()
    for poll in [*both, third]:
        assert len(poll.result().json()["Result"]) == 1


def test_a_killed_client_leaves_its_place_free(puller: Puller) -> None:
    """A long poll whose client hung up no longer counts for max_waiting."""
    Consumer.objects.update(max_waiting=1)
    with puller.hung_up():
        assert puller.post("pull", Expires=LONG).status_code == 429
    wait_briefly(lambda: waiting_pulls() == 0)
    assert puller.pull(Expires=0.1)["Status"]["Reason"] == "timeout"


def test_pulls_of_other_processes_count(census: Subscription, puller: Puller) -> None:
    """The limit max_waiting also counts long polls of other servers, which their rows have."""
    Consumer.objects.update(max_waiting=2)
    elsewhere = PullWaiter.objects.create(
        consumer_id=census.consumer.pk,
        node_id="0" * 32,
        waiting=2,
        waiting_until=Now() + timedelta(minutes=1),
    )
    assert puller.post("pull", Expires=LONG).status_code == 429
    PullWaiter.objects.filter(pk=elsewhere.pk).update(waiting_until=Now())
    assert puller.pull(Expires=0.1)["Status"]["Reason"] == "timeout"


def test_a_refused_pull_is_not_counted(
    census: Subscription, puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A refused pull does not stay in the stored number of waiting pulls, which servers share."""
    monkeypatch.setattr("pulljobs.api.leases.long_poll.waiters.PASS_SECONDS", LONG)
    Consumer.objects.update(max_waiting=2)
    waiter = {"consumer_id": census.consumer.pk, "waiting_until": Now() + timedelta(minutes=1)}
    PullWaiter.objects.create(**waiter, node_id="0" * 32, waiting=2)
    assert puller.post("pull", Expires=LONG).status_code == 429
    wait_until(lambda: waiting() == 2, LONG / 2)


def test_pulls_take_no_more_than_max_in_flight(puller: Puller) -> None:
    """At the limit, a pull with NoWait gets no jobs, and 409 as Code of its Status, not of HTTP."""
    Consumer.objects.update(max_in_flight=3)
    for _ in range(5):
        publish()
    first = puller.taken(Batch=10)
    assert len(first) == 3
    full = puller.pull(Batch=10, NoWait=True)
    assert (full["Result"], full["Status"]["Code"]) == ([], 409)
    assert full["Status"]["Reason"] == "max_in_flight"
    puller.ack(outcome_of(first[0], "DELIVERED"))
    assert len(puller.taken(Batch=10)) == 1
    puller.ack(outcome_of(first[1], "RELEASE"))
    [again] = puller.taken(Batch=10)
    assert again["ID"] == first[1]["ID"] or again["Deliveries"] == 1


def limit(puller: Puller, rate: str, burst: int) -> None:
    consumer = puller.subscription.consumer
    consumer.rate, consumer.rate_burst = rate, burst
    consumer.save()


def test_a_pull_above_the_rate_says_when_to_come_again(puller: Puller) -> None:
    limit(puller, "60/h", 2)
    for _ in range(4):
        publish()
    cut = puller.pull(Batch=10)
    assert len(cut["Result"]) == 2
    empty, expired = puller.pull(NoWait=True), puller.pull(Expires=0.3)
    assert empty["Result"] == expired["Result"] == []
    for status in (cut["Status"], empty["Status"], expired["Status"]):
        assert (status["Code"], status["Reason"]) == (429, "rate_limited")
        assert 30 < status["RetryAfterSeconds"] <= 60
    puller.ack(outcome_of(cut["Result"][0], "RELEASE"))
    answer = puller.pull()
    assert (len(answer["Result"]), answer["Status"]["Reason"]) == (1, "ok")
    assert "RetryAfterSeconds" not in answer["Status"]


def test_a_job_that_was_put_off_has_spent_its_token(puller: Puller) -> None:
    """A release with a reason gives back no token of the rate: the client has run the job."""
    limit(puller, "60/h", 1)
    publish()
    [job] = puller.taken()
    puller.ack(outcome_of(job, "RELEASE", Reason="snooze"))
    assert puller.pull(NoWait=True)["Status"]["Reason"] == "rate_limited"


def test_a_pull_whose_keys_have_no_token_says_when_to_come_again(puller: Puller) -> None:
    consumer = puller.subscription.consumer
    consumer.rate, consumer.rate_per_key = "60/h", True
    consumer.save()
    for _ in range(2):
        publish(key="a")
    assert len(puller.pull(Batch=10)["Result"]) == 1
    for answer in (puller.pull(NoWait=True), puller.pull(Expires=0.3)):
        status = answer["Status"]
        assert (answer["Result"], status["Code"], status["Reason"]) == ([], 409, "key_limited")
        assert 30 < status["RetryAfterSeconds"] <= 60


def test_a_pull_of_a_throttled_consumer_says_when_to_come_again(puller: Puller) -> None:
    publish()
    throttle(USING, {puller.subscription.consumer.pk: 60.0})
    for answer in (puller.pull(NoWait=True), puller.pull(Expires=0.3)):
        assert (answer["Result"], answer["Status"]["Code"]) == ([], 429)
        assert answer["Status"]["Reason"] == "throttled"
        assert 30 < answer["Status"]["RetryAfterSeconds"] <= 60


def test_a_long_poll_of_a_throttled_consumer_gets_a_job_at_its_end(puller: Puller) -> None:
    publish()
    since = time.monotonic()
    throttle(USING, {puller.subscription.consumer.pk: 1.0})
    assert len(puller.long_poll().result().json()["Result"]) == 1
    assert 1 <= time.monotonic() - since < 1 + SLACK


def test_a_long_poll_of_a_limited_consumer_wakes_at_the_next_token(puller: Puller) -> None:
    limit(puller, "2/s", 1)
    for _ in range(3):
        publish()
    assert len(puller.taken(Batch=10)) == 1
    since = time.monotonic()
    for poll in (puller.long_poll(), puller.long_poll()):
        assert len(poll.result().json()["Result"]) == 1
    assert 0.8 < time.monotonic() - since < 1 + SLACK


def test_a_limited_consumer_is_claimed_for_seldom_however_much_is_published(
    puller: Puller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the rate allows no job, many publishes lead to few claims."""
    limit(puller, "60/h", 1)
    publish()
    assert len(puller.taken()) == 1
    claims, genuine = [], pulling.Puller.claim

    def noted(*args: Any, **options: Any) -> pulling.Claim:
        claims.append(args)
        return genuine(*args, **options)

    monkeypatch.setattr(pulling.Puller, "claim", noted)
    with puller.hung_up():
        del claims[:]
        since = time.monotonic()
        for _ in range(30):
            publish()
            time.sleep(0.02)
        seconds = time.monotonic() - since
    assert len(claims) <= seconds / pulling.QUIET.total_seconds() + 3


def test_a_rate_that_is_raised_wakes_a_long_poll(puller: Puller) -> None:
    limit(puller, "1/h", 1)
    publish()
    publish()
    assert len(puller.taken()) == 1
    poll = puller.long_poll()
    limit(puller, "100/s", 100)
    operating.wake(puller.subscription.consumer)
    assert len(poll.result().json()["Result"]) == 1


def test_a_settlement_that_makes_room_wakes_a_waiter(puller: Puller) -> None:
    Consumer.objects.update(max_in_flight=1)
    publish()
    publish()
    [held] = puller.taken()
    polls = puller.long_poll()
    puller.ack(outcome_of(held, "DELIVERED"))
    settled = time.monotonic()
    assert len(polls.result().json()["Result"]) == 1
    assert time.monotonic() - settled < LONG / 2


def test_returned_jobs_queue_behind_those_that_waited(puller: Puller) -> None:
    """Jobs are pulled in the order in which they became available, unlike in NATS."""
    returned, waited = publish(), publish()
    puller.taken()
    pass_time()
    Consumer.objects.update(retry_delays=[0.0])
    pulling.reap()
    assert [job["ID"] for job in puller.taken(Batch=2)] == [
        ids.encode(waited),
        ids.encode(returned),
    ]


@pytest.mark.parametrize("gone", ["tombstone", "row"])
def test_the_deletion_of_a_consumer_ends_the_wait(gone: str, puller: Puller) -> None:
    """The deletion of a consumer immediately ends its long polls with 410. Later pulls get 401."""
    polls = puller.long_poll()
    deleted = time.monotonic()
    if gone == "row":
        Consumer.objects.all().delete()
    else:
        Consumer.objects.update(deleted_at=Now())
    answer = polls.result()
    assert time.monotonic() - deleted < LONG / 2
    assert (answer.status_code, answer.json()["code"]) == (410, "consumer_deleted")
    assert puller.post("pull").status_code == 401


def test_a_consumer_that_is_turned_to_push_ends_the_wait(puller: Puller) -> None:
    polls = puller.long_poll()
    Consumer.objects.update(type=Consumer.Type.PUSH)
    assert polls.result().status_code == 412
    assert puller.post("pull").status_code == 412


@pytest.mark.parametrize("owner", ["consumer", "channel"])
def test_a_new_token_ends_the_wait_under_the_old_one(
    owner: str, puller: Puller, census: Subscription
) -> None:
    """A new token ends the long polls that were sent with the old one. They get 403."""
    poll = puller.long_poll()
    row = census.consumer if owner == "consumer" else census.channel
    row.set_token("the-new-token")
    row.save()
    answer = poll.result()
    assert (answer.status_code, answer.json()["code"]) == (403, "token_replaced")
    publish()
    assert puller.post("pull").status_code == 403
    puller.tokens[f"X-Broker-{owner.title()}-Token"] = "the-new-token"
    assert len(puller.taken()) == 1


def test_a_pull_that_came_while_tokens_were_read_is_not_ended(census: Subscription) -> None:
    """A replaced token ends the pulls that waited before the row was read, and no later ones."""
    queue = WaiterQueue(cast("Any", None), census.consumer)
    early, late = (PendingPull(census.consumer, PullRequest(expires=60)) for _pull in range(2))
    queue.pulls |= {early: None, late: None}
    present = Consumer.objects.select_related("channel").get(pk=census.consumer.pk)
    present.set_token("replaced")
    queue.end_outdated([early], present)
    assert list(queue.pulls) == [late]
    assert isinstance(early.future.exception(0), RefusedRequest)


def test_a_paused_consumer_gives_no_jobs(puller: Puller, census: Subscription) -> None:
    """Pulls get no job, acks work, and a waiting pull gets a job when the pause ends."""
    held_id = publish()
    [held] = puller.taken()
    operating.pause(census.consumer, _database_now() + timedelta(hours=1))
    publish()
    assert puller.pull()["Status"]["Reason"] == "paused"
    assert puller.statuses(outcome_of(held, "DELIVERED")) == ["ok"]
    operating.pause(census.consumer, _database_now() + timedelta(seconds=1.5))
    answer = puller.pull(Expires=LONG)
    assert _database_now() >= Consumer.objects.get().paused_until
    assert [job["ID"] != ids.encode(held_id) for job in answer["Result"]] == [True]


def test_the_end_of_a_pause_wakes_a_waiter(puller: Puller, census: Subscription) -> None:
    publish()
    operating.pause(census.consumer, _database_now() + timedelta(hours=1))
    polls = puller.long_poll()
    operating.pause(census.consumer, None)
    assert len(polls.result().json()["Result"]) == 1


def test_concurrent_pulls_take_one_job_each(puller: Puller) -> None:
    polls = [puller.long_poll(), puller.long_poll()]
    published = {ids.encode(publish()), ids.encode(publish())}
    taken = [poll.result().json()["Result"] for poll in polls]
    assert {job["ID"] for jobs in taken for job in jobs} == published
    assert list(map(len, taken)) == [1, 1]


def test_first_come_first_served(puller: Puller) -> None:
    """Long polls get jobs in the order in which they came."""
    polls = [puller.long_poll() for _ in range(4)]
    for poll in polls:
        job = publish()
        assert poll.result().json()["Result"][0]["ID"] == ids.encode(job)


def test_a_batch_is_filled_before_the_next_pull_gets_something(puller: Puller) -> None:
    first, second = puller.long_poll(Batch=2), puller.long_poll(Batch=2)
    publish_together(3)
    assert [len(poll.result().json()["Result"]) for poll in (first, second)] == [2, 1]


def test_what_falls_due_wakes(puller: Puller) -> None:
    """A delayed job wakes a long poll when it becomes available."""
    publish(delay=timedelta(seconds=0.5))
    start = time.monotonic()
    assert len(puller.taken(Expires=LONG)) == 1
    assert time.monotonic() - start < LONG / 2


def test_a_job_that_was_released_goes_to_who_waits(puller: Puller) -> None:
    publish()
    [held] = puller.taken()
    polls = puller.long_poll()
    puller.ack(outcome_of(held, "RELEASE"))
    [again] = polls.result().json()["Result"]
    assert (again["ID"], again["Deliveries"]) == (held["ID"], 1)


def test_incremental_timeout_makes_the_lease_longer(puller: Puller) -> None:
    publish()
    [job] = puller.taken(IncrementalTimeout=100)
    lease = Lease.objects.get()
    assert job["LeaseSeconds"] == 130
    assert lease.leased_until - lease.claimed_at == timedelta(seconds=130)


@pytest.mark.parametrize("verb", ["pull", "ack", "renew"])
def test_the_ladder_of_checks(verb: str, puller: Puller, census: Subscription) -> None:
    """Checks come in the broker protocol's order, each with a code, before the body is read."""
    census.consumer.type = Consumer.Type.PUSH
    census.consumer.save()
    codes = [_code(puller.post(verb, b"{"))]
    puller.tokens["X-Broker-Consumer-Token"] = "guessed"
    codes.append(_code(puller.post(verb, b"{")))
    puller.path = puller.path.replace("census", "c%25")
    codes.append(_code(puller.post(verb, b"{")))
    puller.tokens["X-Broker-Channel-Token"] = "guessed"
    codes.append(_code(puller.post(verb, b"{")))
    puller.path = puller.path.replace("orders", "order%00")
    codes.append(_code(puller.post(verb, b"{")))
    assert codes == [
        (412, "push_consumer"),
        (403, "wrong_consumer_token"),
        (401, "unknown_consumer"),
        (403, "wrong_channel_token"),
        (404, "unknown_channel"),
    ]


def test_a_wrong_token_is_called_missing_or_wrong(puller: Puller) -> None:
    """The refusal calls a token "missing or wrong", because the caller may have sent one."""
    for header in ("X-Broker-Consumer-Token", "X-Broker-Channel-Token"):
        puller.tokens[header] = "guessed"
        assert f"{header} is missing or wrong" in puller.post("pull").json()["detail"]


def test_other_methods(client: httpx.Client, puller: Puller) -> None:
    """A GET of pull, ack or renew is 405. It and OPTIONS list the allowed methods in Allow."""
    for verb in ("pull", "ack", "renew"):
        url = f"{puller.base}{puller.path}/{verb}"
        answer = client.get(url)
        assert (answer.status_code, answer.headers["Allow"]) == (405, "POST, OPTIONS")
        assert answer.json()["code"] == "method_not_allowed"
        assert answer.json()["detail"].count("Allow header") == 1
        assert client.options(url).headers["Allow"] == "POST, OPTIONS"


def test_the_request_id_comes_back(puller: Puller) -> None:
    """Answers have the X-Request-ID of the request, also those of refusals."""
    puller.tokens["X-Request-ID"] = "r-1"
    assert puller.post("pull").headers["X-Request-ID"] == "r-1"
    assert puller.post("pull", b"{").headers["X-Request-ID"] == "r-1"


def test_consumers_do_not_wait_for_each_other(
    client: httpx.Client, base: str, puller: Puller
) -> None:
    other = Puller(client, base, subscription("invoices", "digest"))
    polls, theirs = puller.long_poll(), other.long_poll()
    publish("invoices")
    assert len(theirs.result().json()["Result"]) == 1
    publish()
    assert len(polls.result().json()["Result"]) == 1


@pytest.mark.own_session
def test_a_notification_that_is_none_of_ours_ends_no_listener(puller: Puller) -> None:
    """Any session of the database can send a malformed notification, which the server ignores."""
    polling = puller.long_poll()
    query("NOTIFY pulljobs, 'nonsense'")
    publish()
    start = time.monotonic()
    assert len(polling.result().json()["Result"]) == 1
    polling = puller.long_poll()
    publish()
    assert len(polling.result().json()["Result"]) == 1
    assert time.monotonic() - start < 10 + SLACK


def publish_together(count: int) -> None:
    publish_many("orders", [b"x"] * count)


def _code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


def _database_now() -> Any:
    return Consumer.objects.annotate(now=Now()).values_list("now", flat=True).first()
