"""The order of checks, and what is the same for every request."""

from typing import Any

import pytest
from django.db.models.functions import Now
from django.http import HttpResponse
from django.test import Client

from pulljobs import ids, operating
from pulljobs.models import Consumer
from pulljobs.states import State
from tests.api.caller import Caller, Subscription, job_in, publish, subscription
from tests.sessions import contents

LADDER = [
    ("no such channel", 404),
    ("wrong channel token", 403),
    ("no such consumer", 401),
    ("wrong consumer token", 403),
    ("push", 412),
]


def break_rung(rung: str, caller: Caller) -> None:
    if rung == "no such channel":
        caller.root = caller.root.replace("orders", "order_")
    elif rung == "wrong channel token":
        caller.tokens["X-Broker-Channel-Token"] = "guessed"
    elif rung == "no such consumer":
        caller.root = caller.root.replace("census", "c%25")
    elif rung == "wrong consumer token":
        caller.tokens["X-Broker-Consumer-Token"] = "guessed"
    else:
        Consumer.objects.update(type=Consumer.Type.PUSH)


@pytest.mark.parametrize("first", range(len(LADDER)))
@pytest.mark.parametrize("endpoint", ["queued-jobs", "job"])
def test_the_first_failing_check_answers(first: int, endpoint: str, caller: Caller) -> None:
    """The request fails one check and all later ones: its status is that of the first."""
    for rung, _status in LADDER[first:]:
        break_rung(rung, caller)
    answer = caller.queued(limit="-1") if endpoint == "queued-jobs" else caller.move("x", body=b"{")
    assert answer.status_code == LADDER[first][1]
    assert answer["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.content.decode().endswith(".")


@pytest.mark.parametrize("header", ["X-Broker-Channel-Token", "X-Broker-Consumer-Token"])
def test_a_missing_token_is_a_wrong_one(header: str, caller: Caller) -> None:
    del caller.tokens[header]
    assert caller.queued().status_code == 403


def test_a_deleted_consumer_is_unknown(census: Subscription, caller: Caller) -> None:
    Consumer.objects.update(deleted_at=Now())
    assert caller.queued().status_code == 401


@pytest.mark.parametrize(
    "job", ["x", "0" * 20, "zzzzzzzzzzzzzzzzzzzz", "C" * 20, "%00", "1", ids.encode(2**40)]
)
def test_a_job_that_never_was_is_unknown(job: str, caller: Caller) -> None:
    assert caller.move(job, body=b"{").status_code == 404


def test_a_dead_job_that_was_deleted_is_unknown(census: Subscription, caller: Caller) -> None:
    job_id = job_in(State.DEAD, census)
    operating.delete([job_id])
    assert caller.move(job_id, State.DEAD).status_code == 404


@pytest.mark.parametrize("source", list(State))
@pytest.mark.parametrize("channel", ["orders", "invoices"])
def test_a_job_of_another_consumer(
    source: State, channel: str, census: Subscription, caller: Caller
) -> None:
    """A job POST for a job of another consumer is 401, even if channels share a consumer name."""
    other = subscription(channel, "census" if channel == "invoices" else "digest")
    job_id = job_in(source, census)
    before = contents()
    for target in State:
        assert Caller(other).move(job_id, target).status_code == 401
    assert contents() == before


@pytest.mark.parametrize("place", ["/channel/%00/consumer/census", "/channel/orders/consumer/%00"])
def test_nul_in_a_name_is_an_unknown_name(place: str, caller: Caller) -> None:
    caller.root = place
    assert caller.queued().status_code in (401, 404)


def test_names_are_free_text(transactional_db: None) -> None:
    """Names may have spaces, % and letters with accents, and are compared exactly."""
    caller = Caller(subscription("Größe 1%", "a b"))
    assert caller.queued().status_code == 200
    caller.root = "/channel/größe 1%/consumer/a b"
    assert caller.queued().status_code == 404


@pytest.mark.parametrize(
    "path",
    ["/channel/orders/consumer/census/queued-jobs/", "/channels/", "/limit-groups/",
     "/limit-group/stripe/", "/limit-group//stripe"],
)  # fmt: skip
def test_paths_with_a_slash_too_many_are_unknown(path: str) -> None:
    """A path with a slash too many is 404 with a sentence of the API, and is not redirected."""
    answer = Client().get(path)
    assert (answer.status_code, b"leave out a slash" in answer.content) == (404, True)


@pytest.mark.parametrize("call", ["queued", "move"])
@pytest.mark.parametrize("status", [200, 404])
def test_the_request_id_is_echoed_or_made(call: str, status: int, caller: Caller) -> None:
    """Answers echo the request id, or have a new one if it is missing, too long or not ASCII."""

    def request_id(sent: dict[str, str]) -> str:
        caller.tokens |= sent
        if status == 404:
            caller.root = "/channel/x/consumer/y"
        answer: HttpResponse = caller.queued() if call == "queued" else caller.move("x")
        return answer["X-Request-ID"]

    made: list[Any] = [request_id({}), request_id({})]
    assert len(set(made)) == 2
    assert request_id({"X-Request-ID": "r-1"}) == "r-1"
    assert request_id({"X-Request-ID": "x" * 201}) != "x" * 201
    assert request_id({"X-Request-ID": "ä"}) != "ä"


@pytest.mark.parametrize("accept", ["text/html", "application/xml", "nonsense"])
def test_neither_accept_nor_format_matters(accept: str, caller: Caller) -> None:
    publish()
    caller.tokens["Accept"] = accept
    answer = caller.queued(format="html")
    assert (answer.status_code, answer["Content-Type"]) == (200, "application/json")
