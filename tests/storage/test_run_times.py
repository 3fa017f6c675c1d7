"""Begin and duration of runs, recorded by the database's clock with the outcome of each job."""

import time
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from django.db.models import Model

from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import ArchivedJob, Attempt
from pulljobs.storage import jobs, leases, nodes
from tests.factories import USING, ConsumerFactory, TimedRun, claimed, published

pytestmark = pytest.mark.django_db
Settle = Callable[[Held], Settlement]


def run_of(settlement: Settlement, seconds_ago: float | None, lasted: float | None) -> Settlement:
    """Return a copy of the settlement with a run that began that long ago and took `lasted` s."""
    begun = None if seconds_ago is None else time.monotonic() - seconds_ago
    return settlement._replace(run=TimedRun(begun, lasted))


def held_jobs(count: int) -> list[Held]:
    consumer = ConsumerFactory.create(retry_strategy="constant:60")
    published(consumer, count)
    return claimed(consumer, count)


def recorded(model: type[Model], held: Sequence[Held]) -> list[tuple[float | None, float | None]]:
    """Return for each job the seconds since its run began, and those that the run took."""
    rows = model._default_manager.using(USING).filter(job_id__in=[job.job_id for job in held])
    at = nodes.clock(USING)
    runs = {
        job_id: (None if started is None else (at - started).total_seconds(), seconds)
        for job_id, started, seconds in rows.values_list("job_id", "started_at", "run_seconds")
    }
    return [runs[job.job_id] for job in held]


def assert_recorded(
    model: type[Model], held: Sequence[Held], runs: Sequence[tuple[float, float]]
) -> None:
    rows = recorded(model, held)
    # The test itself takes a while.
    assert [row[0] for row in rows] == pytest.approx([ago + 2.5 for ago, _lasted in runs], abs=2.5)
    assert [row[1] for row in rows] == pytest.approx([lasted for _ago, lasted in runs])


@pytest.mark.parametrize(
    "settle",
    [outcomes.deliver, lambda held: outcomes.deliver(held, "1")],
    ids=["deliver", "deliver with a result"],
)
def test_begin_and_duration_of_each_run_are_archived(settle: Settle) -> None:
    held = held_jobs(40)
    runs = [(100.0 + 10 * number, 1.0 + number) for number in range(40)]
    settled = [run_of(settle(job), *run) for job, run in zip(held, runs, strict=True)]
    # Threads end their jobs in any order.
    jobs.finish(USING, settled[::-3] + settled[-2::-3] + settled[-3::-3])
    assert_recorded(ArchivedJob, held, runs)


def test_a_job_that_is_lost_leaves_the_times_of_the_others_right() -> None:
    held = held_jobs(3)
    jobs.finish(USING, [outcomes.reject(held[1], "x")])
    runs = [(100.0, 1.0), (200.0, 2.0), (300.0, 3.0)]
    settled = [run_of(outcomes.deliver(job), *run) for job, run in zip(held, runs, strict=True)]
    assert jobs.finish(USING, settled).lost == [held[1].job_id]
    assert_recorded(ArchivedJob, [held[0], held[2]], [runs[0], runs[2]])


def test_a_run_that_ends_in_a_retry_is_recorded_as_an_attempt() -> None:
    held = held_jobs(2)
    runs = [(50.0, 5.0), (60.0, 6.0)]
    settled = [run_of(outcomes.retry(job, "x"), *run) for job, run in zip(held, runs, strict=True)]
    jobs.finish(USING, settled)
    assert_recorded(Attempt, held, runs)


def test_deliveries_of_a_renewed_claim_record_their_runs_as_attempts() -> None:
    held = held_jobs(2)
    leases.renew(USING, held, timedelta(seconds=30))
    runs = [(50.0, 5.0), (60.0, 6.0)]
    jobs.finish(
        USING, [run_of(outcomes.deliver(job), *run) for job, run in zip(held, runs, strict=True)]
    )
    assert_recorded(Attempt, held, runs)
    assert_recorded(ArchivedJob, held, runs)


@pytest.mark.parametrize("with_result", [False, True])
def test_an_unknown_run_is_null_next_to_known_ones(with_result: bool) -> None:
    held = held_jobs(3)
    made = [outcomes.deliver(job, "1" if with_result else None) for job in held]
    jobs.finish(
        USING, [run_of(made[0], None, None), run_of(made[1], 9.0, None), run_of(made[2], 9.0, 3.0)]
    )
    first, second, third = recorded(ArchivedJob, held)
    assert first == (None, None), "a holder that does not report its run"
    assert second[0] is not None
    assert second[1] is None, "delivered before it ran"
    assert third[0] == pytest.approx(9, abs=5)
    assert third[1] == pytest.approx(3)


def test_no_run_is_recorded_where_none_is_known() -> None:
    held = held_jobs(2)
    jobs.finish(USING, [outcomes.deliver(held[0])])
    jobs.finish(USING, [outcomes.reject(held[1], "x")])
    assert recorded(ArchivedJob, held) == [(None, None)] * 2
