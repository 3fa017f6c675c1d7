"""Queued jobs of a consumer, in the order of claims."""

import base64
import time
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django.http import HttpResponse
from django.test import Client

from pulljobs import ids
from pulljobs.models import Job
from pulljobs.states import State
from tests.api.caller import Caller, Subscription, job_in, publish, subscription
from tests.sessions import contents

UNMADE = "0" * 20


def listed(answer: HttpResponse) -> list[str]:
    assert answer.status_code == 200, answer.content
    return [job["ID"] for job in answer.json()["Result"]]  # type: ignore[attr-defined]  # of the test client


def test_the_shape(caller: Caller) -> None:
    """A listed job has exactly the documented fields, as has its message."""
    job_id = publish(
        payload="Grüße", message_id="m-1", headers={"A": "b"}, priority=7, content_type="text/x"
    )
    answer = caller.queued()
    assert answer["Content-Type"] == "application/json"
    assert answer.json() == {  # type: ignore[attr-defined]  # of the test client
        "Result": [
            {
                "ID": ids.encode(job_id),
                "Priority": 7,
                "IncrementalTimeout": 0,
                "Message": {
                    "MessageID": "m-1",
                    "Payload": "Grüße",
                    "Headers": {"A": "b"},
                    "ContentType": "text/x",
                },
            }
        ]
    }


def test_a_message_without_a_client_id_shows_its_own(caller: Caller) -> None:
    message_id = Job.objects.get(id=publish()).message_id
    assert _message(caller)["MessageID"] == ids.encode(message_id)


@pytest.mark.parametrize("payload", [b"\xff\x00", bytes(range(256))])
def test_a_payload_that_is_no_text_goes_as_base64(payload: bytes, caller: Caller) -> None:
    publish(payload=payload)
    message = _message(caller)
    assert message["PayloadEncoding"] == "base64"
    assert base64.b64decode(message["Payload"]) == payload


@pytest.mark.parametrize("payload", ["", "a\x00b", "\u2028\U0001f600"])
def test_text_goes_as_it_is(payload: str, caller: Caller) -> None:
    """A payload in UTF-8 is shown as text, even if it has NUL or is empty."""
    publish(payload=payload.encode())
    message = _message(caller)
    assert message["Payload"] == payload
    assert "PayloadEncoding" not in message


def test_nothing_waits(caller: Caller) -> None:
    """Without queued jobs, the answer is an empty list without a link."""
    answer = caller.queued()
    assert answer.content == b'{"Result":[]}'
    assert "Link" not in answer


def test_only_this_consumer_s_due_jobs(census: Subscription, caller: Caller) -> None:
    """Jobs that are delayed, blocked, in flight, dead, delivered or another's are not listed."""
    for state in State:
        job_in(state, census)
    [due] = Job.objects.filter(state=State.QUEUED).values_list("id", flat=True)
    publish(delay=timedelta(hours=1))
    Job.objects.filter(id=publish()).update(available_at=None)
    subscription("orders", "digest")
    Job.objects.filter(id=publish()).delete()
    before = contents()
    assert listed(caller.queued()) == [ids.encode(due)]
    assert contents() == before


def test_by_falling_priority_then_by_the_time_available(caller: Caller) -> None:
    """At one priority, the job that has been available longest comes first, whenever published."""
    for priority in (0, 5, -32768, 32767, 5):
        publish(priority=priority)
    late = publish(priority=5)
    Job.objects.filter(id=late).update(available_at=Now() - timedelta(hours=1))
    expected = Job.objects.order_by("-priority", "available_at", "id").values_list("id", flat=True)
    assert listed(caller.queued()) == list(map(ids.encode, expected))
    assert listed(caller.queued())[1] == ids.encode(late)


@pytest.mark.parametrize(
    ("limit", "shown"),
    [
        (None, 25),
        ("", 25),
        ("0", 0),
        ("0" * 5000, 0),
        ("1", 1),
        ("007", 7),
        ("100", 100),
        ("101", 100),
        ("9" * 19, 100),
        ("9" * 5000, 100),
    ],
)
def test_limits(limit: str | None, shown: int, caller: Caller) -> None:
    """The parameter `limit` sets the number of jobs, from 0 to 100. The default is 25."""
    _many(105)
    query = {} if limit is None else {"limit": limit}
    assert len(listed(caller.queued(**query))) == shown


@pytest.mark.parametrize("limit", ["-1", "1.5", "ten", "1e2", "0x10", " 5", "٣", "1_0"])
def test_a_limit_that_is_no_whole_number(limit: str, caller: Caller) -> None:
    """A parameter `limit` that is no whole number is refused with 400."""
    assert caller.queued(limit=limit).status_code == 400


def test_a_long_limit_that_is_no_whole_number_is_refused_at_once(caller: Caller) -> None:
    before = time.thread_time()
    assert caller.queued(limit="0" * 8_000 + "x").status_code == 400
    assert time.thread_time() - before < 0.5


def test_pages_show_every_job_once(caller: Caller) -> None:
    """Pages neither repeat nor omit jobs of one instant and priority, while listed jobs go."""
    _many(23)
    Job.objects.filter(priority=1).update(available_at=Now() - timedelta(minutes=1))
    expected = _in_order()
    seen, url = [], f"{caller.root}/queued-jobs?limit=4"
    while url:
        answer: Any = Client().get(url, headers=caller.tokens)
        page = listed(answer)
        assert 0 < len(page) <= 4
        seen += page
        Job.objects.filter(id=ids.decode(page[-1])).delete()
        link = answer.get("Link", "")
        assert link.endswith('; rel="next"') or not link
        url = link.removesuffix('; rel="next"').strip("<>")
    assert seen == expected


def test_a_full_page_that_is_the_last_has_no_link(caller: Caller) -> None:
    _many(4)
    assert "Link" not in caller.queued(limit=4)
    assert "Link" in caller.queued(limit=3)


def test_links_keep_names_escaped(transactional_db: None) -> None:
    caller = Caller(subscription("a b", "größe"))
    publish("a b")
    publish("a b")
    link = caller.queued(limit=1)["Link"]
    assert link.startswith("</channel/a%20b/consumer/gr%C3%B6%C3%9Fe/queued-jobs?")
    assert Client().get(link[1 : link.index(">")], headers=caller.tokens).status_code == 200


@pytest.mark.parametrize("page", ["x", "1.2.3", f"0.1.{UNMADE}", f"0.{'9' * 18}.{UNMADE}"])
def test_a_page_that_no_link_named(page: str, caller: Caller) -> None:
    """A cursor that was not made by the server is refused with 400."""
    assert caller.queued(next=page).status_code == 400


def _many(count: int) -> None:
    for number in range(count):
        publish(priority=number % 3)


def _in_order() -> list[str]:
    jobs = Job.objects.order_by("-priority", "available_at", "id").values_list("id", flat=True)
    return list(map(ids.encode, jobs))


def _message(caller: Caller) -> dict[str, Any]:
    [job] = caller.queued().json()["Result"]  # type: ignore[attr-defined]  # of the test client
    message: dict[str, Any] = job["Message"]
    return message
