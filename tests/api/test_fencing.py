"""Job POSTs with the lease token of the holder, with other tokens and without one."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models.functions import Now
from django.http import HttpResponse

from pulljobs import operating, pulling
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Job, Lease
from pulljobs.states import State
from tests.api.caller import (
    Caller,
    Subscription,
    claimed_by_worker,
    job_in,
    kill,
    publish,
    taken_by_post,
)
from tests.sessions import at_once, contents, session

SETTLED = [State.DELIVERED, State.DEAD]


def expire(held: Held) -> None:
    Lease.objects.filter(lease_token=held.lease_token).update(
        leased_until=Now() - timedelta(seconds=1)
    )
    assert pulling.reap() == 1
    Job.objects.filter(id=held.job_id).update(available_at=Now())


@pytest.mark.parametrize("target", sorted(SETTLED))
def test_the_holder_settles_with_its_token(
    target: State, census: Subscription, caller: Caller
) -> None:
    held = taken_by_post(census, publish())
    assert caller.move(held.job_id, target, lease_token=held.lease_token).status_code == 202


@pytest.mark.parametrize("target", sorted(SETTLED))
def test_a_worker_s_job_is_settled_only_with_its_token(
    target: State, census: Subscription, caller: Caller
) -> None:
    held = claimed_by_worker(census, publish())
    before = contents()
    assert caller.move(held.job_id, target).status_code == 409
    assert contents() == before
    assert caller.move(held.job_id, target, lease_token=held.lease_token).status_code == 202


@pytest.mark.django_db(transaction=True)
def test_a_job_whose_row_stays_locked_is_settled_by_a_repeat(
    census: Subscription, caller: Caller
) -> None:
    held = taken_by_post(census, publish())
    with session() as other:
        other.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [held.job_id])
        answer = caller.move(held.job_id, State.DELIVERED, lease_token=held.lease_token)
        assert (answer.status_code, answer["Retry-After"]) == (503, "1")
    answer = caller.move(held.job_id, State.DELIVERED, lease_token=held.lease_token)
    assert answer.status_code == 202


@pytest.mark.parametrize("target", [*sorted(SETTLED), State.INFLIGHT, State.QUEUED])
@pytest.mark.parametrize("by_worker", [True, False])
def test_a_lease_that_another_took_over_moves_nothing(
    target: State, by_worker: bool, census: Subscription, caller: Caller
) -> None:
    """The token of an expired lease gets 409 for any state once another holder has the job."""
    first = taken_by_post(census, publish())
    expire(first)
    (claimed_by_worker if by_worker else taken_by_post)(census, first.job_id)
    before = contents()
    assert caller.move(first.job_id, target, lease_token=first.lease_token).status_code == 409
    assert contents() == before


@pytest.mark.parametrize("target", sorted(SETTLED))
def test_without_a_token_a_worker_that_took_over_is_untouched(
    target: State, census: Subscription, caller: Caller
) -> None:
    first = taken_by_post(census, publish())
    expire(first)
    second = claimed_by_worker(census, first.job_id)
    before = contents()
    assert caller.move(first.job_id, target).status_code == 409
    assert contents() == before
    assert pulling.finish([outcomes.deliver(second)]).states == {second.job_id: State.DELIVERED}


@pytest.mark.parametrize("source", list(State))
@pytest.mark.parametrize("token", [str(UUID(int=4)), "not a token", "", "None"])
@pytest.mark.parametrize("target", list(State))
def test_a_foreign_token_moves_nothing(
    source: State, target: State, token: str, census: Subscription, caller: Caller
) -> None:
    job_id = job_in(source, census)
    before = contents()
    assert caller.move(job_id, target, lease_token=token).status_code == 409
    assert contents() == before


@pytest.mark.parametrize("target", sorted(SETTLED))
def test_repeating_a_settlement_under_its_token_is_no_loss(
    target: State, census: Subscription, caller: Caller
) -> None:
    held = taken_by_post(census, publish())
    caller.move(held.job_id, target, lease_token=held.lease_token)
    before = contents()
    assert caller.move(held.job_id, target, lease_token=held.lease_token).status_code == 202
    assert contents() == before


def test_a_killed_job_is_lost(census: Subscription, caller: Caller) -> None:
    """A holder whose job was killed gets 409 for its token, and 400 without a token."""
    held = taken_by_post(census, publish())
    kill(held.job_id)
    before = contents()
    assert (
        caller.move(held.job_id, State.DELIVERED, lease_token=held.lease_token).status_code == 409
    )
    assert caller.move(held.job_id, State.DELIVERED).status_code == 400
    assert contents() == before


@pytest.mark.parametrize("scope", ["channel", "consumer"])
@pytest.mark.parametrize("source", [State.QUEUED, State.DEAD])
def test_nothing_is_taken_while_paused(
    scope: str, source: State, census: Subscription, caller: Caller
) -> None:
    """While its consumer or channel is paused, a job POST claims nothing and gets 409."""
    job_id = job_in(source, census)
    paused = getattr(census, scope)
    paused.paused_until = Now() + timedelta(hours=1)
    paused.save()
    before = contents()
    answer = caller.move(job_id, State.INFLIGHT)
    assert (answer.status_code, b"paused" in answer.content) == (409, True)
    assert contents() == before
    paused.paused_until = Now() - timedelta(hours=1)
    paused.save()
    assert caller.move(job_id, State.INFLIGHT).status_code == 202


@pytest.mark.parametrize("source", [State.QUEUED, State.DEAD])
@pytest.mark.parametrize("timeout", [{}, {"IncrementalTimeout": 5}])
def test_of_takers_at_once_one_gets_the_lease(
    source: State, timeout: dict[str, int], census: Subscription
) -> None:
    """One of several job POSTs gets the lease. Others get 202 without it, or 400 with a timeout."""
    takers = 8
    for _round in range(5):
        job_id = job_in(source, census)
        answers = at_once(takers, partial(_take, census, job_id, timeout))
        winners = [answer for answer in answers if "X-Broker-Lease-Token" in answer]
        assert [answer.status_code for answer in winners] == [202]
        assert {answer.status_code for answer in answers if answer not in winners} == {
            400 if timeout else 202
        }
        job = Job.objects.get(id=job_id)
        assert str(job.lease_token) == winners[0]["X-Broker-Lease-Token"]
        assert job.deliveries == (2 if source == State.DEAD else 1)
        assert Lease.objects.filter(job_ids__contains=[job_id]).count() == 1


def _take(census: Subscription, job_id: int, timeout: dict[str, Any], _number: int) -> HttpResponse:
    return Caller(census).move(job_id, State.INFLIGHT, **timeout)


@pytest.mark.parametrize(
    ("meanwhile", "expected"),
    [
        (lambda held: pulling.finish([outcomes.reject(held, "by another")]), 400),
        (lambda held: pulling.finish([outcomes.deliver(held)]), 202),
        (lambda held: operating.kill([held.job_id], by="a test"), 400),
    ],
)
def test_a_request_that_was_overtaken_overwrites_nothing(
    meanwhile: Callable[[Held], object],
    expected: int,
    census: Subscription,
    caller: Caller,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A job POST that a settlement overtakes changes nothing and answers as if it came later."""
    held = taken_by_post(census, publish())
    finish = pulling.finish

    def overtaken(*arguments: Any) -> object:
        monkeypatch.undo()
        meanwhile(held)
        seen.update(contents())
        return finish(*arguments)

    seen: dict[str, object] = {}
    monkeypatch.setattr(pulling, "finish", overtaken)
    assert caller.move(held.job_id, State.DELIVERED).status_code == expected
    assert contents() == seen
    assert connection.is_usable()
