"""Looking one job up, and waiting for it."""

from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from django.db import transaction

from pulljobs import ids, jobs, operating
from pulljobs.engine import outcomes
from pulljobs.errors import PulljobsError, UnknownJob
from pulljobs.publishing import Draft, publish_many
from pulljobs.states import State
from pulljobs.storage import jobs as verbs
from tests.factories import USING, ConsumerFactory, JobFactory, claimed, published
from tests.sessions import PATIENCE_SECONDS, Thread, query

pytestmark = pytest.mark.django_db


def test_a_job_that_never_was() -> None:
    """`jobs.get` raises UnknownJob for an id that no job has ever had."""
    for number in (1, 0, -1, 2**63, 2**200):
        with pytest.raises(UnknownJob, match=f"no job {number}, neither live nor in the archive"):
            jobs.get(number)


def test_an_id_in_any_form_that_is_shown() -> None:
    """`jobs.get` accepts an id as number, as digits and in its public form."""
    [job] = published(ConsumerFactory.create())
    assert {jobs.get(each).id for each in (job, str(job), ids.encode(job))} == {job}
    with pytest.raises(ValueError, match="'dc1' is not an id"):
        jobs.get("dc1")


@pytest.mark.parametrize("state", list(State))
def test_a_job_in_any_state(state: State) -> None:
    """`jobs.get` shows the state of a job, and when and why it was settled."""
    job = JobFactory.create(state=state)
    view = jobs.get(job.id)
    assert (view.id, view.state) == (job.id, state)
    assert (view.settled_at is not None) == (state in {State.DELIVERED, State.DEAD})
    assert (view.reason, view.error) == (
        ("rejected", "bad") if state is State.DEAD else (None, None)
    )


def test_a_delivered_job_shows_its_result() -> None:
    consumer = ConsumerFactory.create()
    [job_id] = published(consumer)
    verbs.finish(USING, [outcomes.deliver(held, '{"sum": 3}') for held in claimed(consumer)])
    view = jobs.get(job_id)
    assert (view.result, view.deliveries, view.retry_count) == ({"sum": 3}, 1, 0)
    assert view.claimed_at is not None
    assert view.settled_at is not None
    assert view.claimed_at <= view.settled_at


def test_a_retried_job_shows_its_last_error() -> None:
    consumer = ConsumerFactory.create(retry_strategy="constant:60")
    [job_id] = published(consumer)
    verbs.finish(USING, [outcomes.retry(held, "try again") for held in claimed(consumer)])
    view = jobs.get(job_id)
    assert (view.state, view.retry_count, view.error) == (State.QUEUED, 1, "try again")


def test_operators_may_give_public_ids() -> None:
    [job] = published(ConsumerFactory.create())
    for act in (partial(operating.kill, by="eve"), operating.redrive):
        assert act([ids.encode(job), job, -1]) == ([job], [-1])
        wrong: Any
        for wrong in ("nix", 2**63, True, 1.5):
            with pytest.raises(ValueError, match="is not an id"):
                act([wrong])
        single: Any
        for single in (job, str(job), ids.encode(job), None):
            with pytest.raises(ValueError, match=f"{single!r} is no list of ids"):
                act(single)


def test_operators_give_the_row_of_a_consumer() -> None:
    """Operations refuse the name of a consumer or channel and ask for its row, with a TypeError."""
    acts: list[Any] = [operating.purge, operating.redrive_all, operating.stats]
    for act in (*acts, operating.delete_exhausted):
        with pytest.raises(TypeError, match="Give a Consumer, the row itself, not 'orders/census'"):
            act("orders/census")
    with pytest.raises(TypeError, match="Give a Channel or Consumer, the row itself, not 'orders'"):
        operating.pause("orders", None)  # type: ignore[arg-type]


def test_a_redriven_job_starts_fresh_and_its_next_end_is_shown() -> None:
    job = JobFactory.create(state=State.DEAD)
    assert operating.redrive([job.id, 5]) == ([job.id], [5])
    view = jobs.get(job.id)
    assert (view.state, view.retry_count, view.deliveries) == (State.QUEUED, 0, 0)
    assert (view.error, view.reason, view.settled_at) == (None, None, None)
    verbs.finish(USING, [outcomes.reject(held, "again") for held in claimed(job.consumer)])
    assert jobs.get(job.id).error == "again"


def test_a_deleted_job_is_still_in_the_archive() -> None:
    job = JobFactory.create(state=State.DEAD)
    assert operating.delete([job.id, job.id]) == ([job.id], [])
    assert jobs.get(job.id).state == State.DEAD
    assert operating.delete([job.id]) == ([], [job.id])


def test_a_killed_job_names_the_operator() -> None:
    job = JobFactory.create()
    assert operating.kill([job.id, 9], by="eve") == ([job.id], [9])
    view = jobs.get(job.id)
    assert (view.state, view.reason, view.error) == (State.DEAD, "killed", "killed by eve")


@pytest.mark.django_db(transaction=True)
def test_waiting_ends_with_the_job() -> None:
    job = JobFactory.create(state=State.INFLIGHT)
    waiting = Thread(lambda: jobs.wait(job.id, timeout=PATIENCE_SECONDS))
    verbs.finish(USING, [outcomes.deliver(job.held, "7")])
    view = waiting.result()
    assert (view.state, view.result) == (State.DELIVERED, 7)


@pytest.mark.django_db(transaction=True)
def test_waiting_ends_with_the_time() -> None:
    assert jobs.wait(JobFactory.create().id, timeout=0.05) is None
    assert jobs.wait(JobFactory.create().id, timeout=timedelta()) is None
    with pytest.raises(ValueError, match="seconds or a timedelta, not nan"):
        jobs.wait(JobFactory.create().id, timeout=float("nan"))


@pytest.mark.django_db(transaction=True)
def test_waiting_for_a_settled_job_takes_no_time() -> None:
    view = jobs.wait(JobFactory.create(state=State.DEAD).id, timeout=0)
    assert view is not None
    assert view.state == State.DEAD


@pytest.mark.django_db(transaction=True)
def test_waiting_inside_a_transaction_is_refused() -> None:
    job = JobFactory.create()
    with transaction.atomic(USING), pytest.raises(PulljobsError, match="leave it first"):
        jobs.wait(job.id, timeout=1)


def test_counts_of_a_consumer() -> None:
    """`operating.stats` counts the jobs of one consumer by state, and returns the longest wait."""
    consumer = ConsumerFactory.create(retry_strategy="constant:600")
    published(consumer, 10)
    held = claimed(consumer, 6)
    verbs.finish(USING, [outcomes.reject(held[0], ""), outcomes.retry(held[1], "")])
    verbs.finish(USING, [outcomes.deliver(held[2])])
    JobFactory.create(state=State.INFLIGHT)
    query("UPDATE pulljobs_job SET available_at = available_at - interval '90 s'")
    stats = operating.stats(consumer)
    assert stats[:4] == (4, 1, 3, 1)
    assert stats.oldest_ready_seconds == pytest.approx(90, abs=20)
    assert operating.stats(ConsumerFactory.create()) == (0, 0, 0, 0, None, 0)


def test_counts_stop_at_their_cap_and_do_not_hide_one_another() -> None:
    consumer = ConsumerFactory.create()
    delayed = [Draft(payload=b"", delay=timedelta(hours=1), priority=5)] * 40
    publish_many(consumer.channel.name, delayed)
    published(consumer, 20)
    claimed(consumer, 3)
    stats = verbs.stats(USING, consumer.pk, cap=10)
    assert stats[:4] == (10, 10, 3, 0)
    assert stats.oldest_ready_seconds is not None
