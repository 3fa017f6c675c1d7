"""RequestID: a repeat gets the same claim, so an answer that was lost costs nothing."""

import time

import httpx
import pytest
from django.db import transaction

from pulljobs import ids, pulling
from pulljobs.models import Consumer
from tests.api.caller import kill, publish, subscription
from tests.api.leases.serving import LONG, Puller, claim_elsewhere, in_flight, outcome_of
from tests.factories import USING
from tests.sessions import at_once, pass_time


def test_a_repeated_request_gets_the_same_claim(puller: Puller) -> None:
    publish()
    publish()
    first = puller.taken(Batch=1, RequestID="r")
    assert puller.taken(Batch=1, RequestID="r") == first
    assert puller.taken(Batch=5, RequestID="r", Expires=LONG) == first
    assert in_flight() == 1
    assert len(puller.taken(Batch=5, RequestID="s")) == 1


def test_a_request_id_of_another_consumer_gets_nothing_of_its_claim(
    puller: Puller, client: httpx.Client, base: str
) -> None:
    other = Puller(client, base, subscription("orders", "another"))
    publish()
    [ours] = puller.taken(RequestID="r")
    [theirs] = other.taken(RequestID="r")
    assert ours["ID"] != theirs["ID"]
    assert ours["LeaseToken"] != theirs["LeaseToken"]
    assert puller.taken(RequestID="r") == [ours]


def test_a_repeat_gets_what_is_still_held(puller: Puller) -> None:
    for _ in range(3):
        publish()
    first, second, third = puller.taken(Batch=3, RequestID="r")
    puller.ack(outcome_of(first, "DELIVERED"))
    kill(ids.decode(third["ID"]))
    assert puller.taken(Batch=3, RequestID="r") == [second]


def test_a_repeat_beside_the_first_gets_the_same(puller: Puller) -> None:
    for _ in range(8):
        publish()
    taken = at_once(4, lambda n: puller.taken(Batch=2, RequestID="r"))
    assert taken == [taken[0]] * 4
    assert in_flight() == 2


def test_a_request_that_lingered_is_repeated(puller: Puller) -> None:
    """A long poll whose answer was lost is sent again and gets the same jobs and lease."""
    lingering = puller.long_poll(RequestID="r")
    publish()
    taken = lingering.result().json()["Result"]
    assert puller.taken(RequestID="r", Expires=LONG) == taken


def test_after_the_lease_a_request_claims_again(puller: Puller) -> None:
    Consumer.objects.update(retry_delays=[0.0])
    publish()
    [before] = puller.taken(RequestID="r")
    pass_time()
    pulling.reap()
    [after] = puller.taken(RequestID="r", Expires=LONG)
    assert (after["ID"], after["RetryCount"]) == (before["ID"], 1)
    assert after["LeaseToken"] != before["LeaseToken"]


@pytest.mark.parametrize("expires", [0.0, LONG])
def test_a_repeat_does_not_stand_in_line(puller: Puller, expires: float) -> None:
    """A repeat gets its jobs at once, although other pulls wait for jobs before it."""
    publish()
    first = puller.taken(RequestID="r")
    other = puller.long_poll(RequestID="s")
    assert puller.taken(RequestID="r", Expires=expires) == first
    publish()
    assert len(other.result().json()["Result"]) == 1


def test_a_repeat_that_lingers_beside_the_first_gets_the_same(puller: Puller) -> None:
    """A long poll and its repeat get the same job. A poll that waits between them gets the next."""
    first = puller.long_poll(RequestID="r")
    between = puller.long_poll()
    again = puller.long_poll(RequestID="r")
    publish()
    assert again.result().json()["Result"] == first.result().json()["Result"]
    publish()
    assert len(between.result().json()["Result"]) == 1


@pytest.mark.parametrize("expires", [0.0, LONG])
def test_a_repeat_without_held_jobs_says_so(puller: Puller, expires: float) -> None:
    publish()
    [taken] = puller.taken(RequestID="r")
    kill(ids.decode(taken["ID"]))
    publish()
    answer = puller.pull(RequestID="r", Expires=expires)
    assert (answer["Result"], answer["Status"]["Reason"]) == ([], "no_messages")


def test_a_repeat_without_held_jobs_delays_no_other_pull(puller: Puller) -> None:
    """A repeat whose jobs were killed gets none, and other pulls get theirs without delay."""
    repeat = puller.long_poll(RequestID="r")
    with transaction.atomic(using=USING):  # A poll follows each registration by 50 ms.
        [killed] = claim_elsewhere(puller, "r")
        kill(ids.decode(killed))
    publish()
    assert len(puller.taken()) == 1
    assert repeat.result().json()["Result"] == []


def test_a_repeat_that_does_not_wait_ends_the_long_poll_that_it_repeats(puller: Puller) -> None:
    """A repeat that does not wait ends the long poll that it repeats, which the client gave up."""
    given_up = puller.long_poll(RequestID="r")
    start = time.monotonic()
    assert puller.taken(RequestID="r", MaxBytes=1) == []
    assert given_up.result().json()["Status"]["Reason"] == "timeout"
    assert time.monotonic() - start < LONG / 2
    publish()
    assert len(puller.taken()) == 1


def test_a_repeat_in_line_gets_the_whole_claim(puller: Puller) -> None:
    """A waiting repeat gets all jobs of a claim that another process made, even above its Batch."""
    repeat = puller.long_poll(RequestID="r", Batch=1)
    taken = claim_elsewhere(puller, "r", jobs=2)
    assert puller.taken() == []
    assert {job["ID"] for job in repeat.result().json()["Result"]} == taken
    assert in_flight() == 2
