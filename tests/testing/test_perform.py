"""`perform` runs one handler by the rules of its registration, without a queue."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError
from django.db.transaction import TransactionManagementError

from pulljobs.errors import Discard, LeaseLost, Retry
from pulljobs.handlers import AckPolicy, ClaimedJob, handler
from pulljobs.states import Event
from pulljobs.testing import perform

Function = Callable[[ClaimedJob], Any]


def fail(job: ClaimedJob) -> None:
    raise ValueError("no such order")


def registered(function: Function, **options: Any) -> Function:
    return handler(channel="c", consumer="c", **options)(function)


def test_the_handler_gets_the_described_job() -> None:
    def look(job: ClaimedJob) -> Any:
        seen = [job.json(), job.key, job.headers, job.priority, job.retry_count, job.deliveries]
        return [*seen, job.stopping, job.lost, job.renew(), job.content_type]

    done = perform(look, {"a": 1}, key="k", headers={"h": "v"}, priority=2, retry_count=3)
    assert done.event is Event.DELIVER
    assert done.result == [
        {"a": 1}, "k", {"h": "v"}, 2, 3, 4, False, False, True, "application/json",
    ]  # fmt: skip


def test_the_message_has_the_id_and_type_of_a_published_one() -> None:
    def look(job: ClaimedJob) -> Any:
        return [job.client_message_id, job.content_type]

    done = perform(look, b"<a/>", message_id="m", content_type="application/xml")
    assert done.result == ["m", "application/xml"]
    assert perform(look, b"<a/>").result == [None, "application/octet-stream"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32-be"])
def test_json_in_any_encoding(encoding: str) -> None:
    """`job.json()` reads UTF-8, UTF-16 and UTF-32, with or without a byte order mark."""
    done = perform(lambda job: job.json(), '{"a": "\u20ac"}'.encode(encoding))
    assert done.result == {"a": "\u20ac"}


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff\xff", b"{}x"])
def test_a_payload_that_is_no_json_is_a_value_error(payload: bytes) -> None:
    assert isinstance(perform(lambda job: job.json(), payload).exception, ValueError)


def test_lost_and_stopping_are_seen_by_the_handler() -> None:
    done = perform(lambda job: [job.lost, job.renew(), job.stopping], lost=True, stopping=True)
    assert done.result == [True, False, True]


def test_an_exception_is_returned_with_its_outcome() -> None:
    done = perform(fail)
    assert (done.event, type(done.exception)) == (Event.RETRY, ValueError)
    assert done.error is not None
    assert done.error.startswith("ValueError: no such order")


def test_signals_of_the_handler_are_outcomes() -> None:
    def retry(job: ClaimedJob) -> None:
        raise Retry(after=timedelta(minutes=5), reason="locked")

    def discard(job: ClaimedJob) -> None:
        raise Discard("void")

    again, never = perform(retry), perform(discard)
    assert (again.event, again.after, again.error) == (Event.RETRY, timedelta(minutes=5), "locked")
    assert (never.event, never.error) == (Event.REJECT, "void")


@pytest.mark.parametrize(
    ("policy", "event"),
    [
        (AckPolicy.NACK_ON_ERROR, Event.RETRY),
        (AckPolicy.REJECT_ON_ERROR, Event.REJECT),
        (AckPolicy.ACK, Event.DELIVER),
        (AckPolicy.ACK_FIRST, Event.DELIVER),
        (AckPolicy.MANUAL, Event.RETRY),
    ],
)
def test_the_policy_of_the_registration_applies(policy: AckPolicy, event: Event) -> None:
    assert perform(registered(fail, ack_policy=policy)).event is event


@pytest.mark.parametrize(
    "raised", [Retry(after=timedelta(minutes=5)), Discard("void"), LeaseLost(1), ValueError()]
)
def test_a_job_that_is_settled_first_is_delivered_despite_its_run(raised: Exception) -> None:
    def work(job: ClaimedJob) -> str:
        if job.text == "raise":
            raise raised
        assert not job.nack()
        return "result"

    registered(work, ack_policy=AckPolicy.ACK_FIRST)
    assert perform(work, "raise") == (Event.DELIVER, None, None, None, raised)
    assert perform(work) == (Event.DELIVER, None, None, None, None)


def test_a_handler_that_raises_lease_lost_has_no_outcome() -> None:
    def stop(job: ClaimedJob) -> None:
        raise LeaseLost(job.id)

    with pytest.raises(AssertionError, match="write nothing") as caught:
        perform(stop)
    assert isinstance(caught.value.__cause__, LeaseLost)
    assert perform(stop, lost=True).event is Event.RELEASE


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("payload", "kept"), [("deliver", True), ("nack", True), ("raise", False)])
def test_transactional_effects_stay_or_go_as_in_a_worker(payload: str, kept: bool) -> None:
    def work(job: ClaimedJob) -> None:
        Group.objects.create(name="effect")
        if job.text == "nack":
            job.nack()
        if job.text == "raise":
            raise ValueError

    perform(registered(work, transactional=True), payload)
    assert Group.objects.exists() is kept


@pytest.mark.django_db(transaction=True)
def test_transactional_effects_of_a_lost_job_are_rolled_back() -> None:
    """If the lease is lost, `perform` rolls back what a handler wrote, and returns its outcome."""

    def work(job: ClaimedJob) -> bool:
        Group.objects.create(name="effect")
        return job.lost

    done = perform(registered(work, transactional=True), lost=True)
    assert (done.event, done.result) == (Event.DELIVER, True)
    assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("policy", "event"),
    [
        (AckPolicy.NACK_ON_ERROR, Event.RETRY),
        (AckPolicy.REJECT_ON_ERROR, Event.REJECT),
        (AckPolicy.ACK, Event.DELIVER),
    ],
)
def test_error_that_a_transactional_handler_swallows_fails_the_settle_as_in_a_worker(
    policy: AckPolicy, event: Event
) -> None:
    """A swallowed database error fails the settlement, so the ack policy decides the outcome."""

    def work(job: ClaimedJob) -> None:
        Group.objects.create(name="effect")
        with suppress(IntegrityError):
            Group.objects.create(name="effect")

    done = perform(registered(work, transactional=True, ack_policy=policy))
    assert (done.event, type(done.exception)) == (event, TransactionManagementError)
    assert not Group.objects.exists()


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("policy", "acked", "rejected"),
    [
        (AckPolicy.NACK_ON_ERROR, Event.RETRY, Event.REJECT),
        (AckPolicy.REJECT_ON_ERROR, Event.REJECT, Event.REJECT),
        (AckPolicy.ACK, Event.DELIVER, Event.REJECT),
        (AckPolicy.MANUAL, Event.RETRY, Event.REJECT),
    ],
)
def test_the_outcome_of_a_transactional_handler_that_raises_is_that_of_a_worker(
    policy: AckPolicy, acked: Event, rejected: Event
) -> None:
    """The effects are rolled back. A reject stands, and after an ack the ack policy decides."""

    def work(job: ClaimedJob) -> None:
        Group.objects.create(name="effect")
        if job.text == "ack":
            job.ack()
        else:
            job.reject()
        raise ValueError

    registered(work, transactional=True, ack_policy=policy)
    assert (perform(work, "ack").event, perform(work, "reject").event) == (acked, rejected)
    assert not Group.objects.exists()
