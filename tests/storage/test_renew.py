"""A renewal gives held jobs a full lease, and reports lost jobs."""

from collections.abc import Iterator
from datetime import timedelta

import pytest

from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.models import Lease
from pulljobs.states import Reason
from pulljobs.storage import jobs, leases
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.sessions import contents, pass_time, query, run, session

pytestmark = pytest.mark.django_db


def held_jobs(count: int, **options: object) -> list[Held]:
    consumer = ConsumerFactory.create(**options)
    published(consumer, count)
    return claimed(consumer, count)


def leases_by_jobs() -> dict[frozenset[int], Lease]:
    return {frozenset(lease.job_ids): lease for lease in Lease.objects.all()}


def left(lease: Lease) -> timedelta:
    [(interval,)] = query(
        "SELECT leased_until - clock_timestamp() FROM pulljobs_lease WHERE id = %s", [lease.pk]
    )
    return interval  # type: ignore[no-any-return]  # an interval


def test_a_renewal_runs_a_full_lease_from_now() -> None:
    held = held_jobs(3, lease_duration=timedelta(seconds=30))
    query("UPDATE pulljobs_lease SET leased_until = clock_timestamp() + '1 s'")
    renewed = leases.renew(USING, held)
    [lease] = Lease.objects.all()
    assert renewed == dict.fromkeys(held, lease.leased_until)
    assert timedelta(seconds=10) < left(lease) <= timedelta(seconds=30)


def test_a_renewal_for_another_time() -> None:
    """A renewal may ask for another duration than that of the lease."""
    held = held_jobs(1)
    leases.renew(USING, held, timedelta(seconds=600))
    assert timedelta(seconds=500) < left(Lease.objects.get()) <= timedelta(seconds=600)


def test_a_renewal_never_shortens() -> None:
    held = held_jobs(1, lease_duration=timedelta(seconds=300))
    before = Lease.objects.get().leased_until
    assert leases.renew(USING, held, timedelta(seconds=5)) == {held[0]: before}
    assert Lease.objects.get().leased_until == before


def test_a_renewal_never_goes_past_the_hard_end() -> None:
    held = held_jobs(1)
    hard_end = Lease.objects.get().hard_end
    assert leases.renew(USING, held, timedelta(days=5)) == {held[0]: hard_end}
    assert Lease.objects.get().leased_until == hard_end


def test_nothing_is_renewed_past_the_hard_end() -> None:
    held = held_jobs(1)
    query(
        "UPDATE pulljobs_lease SET"
        " leased_until = now() - interval '1 h', hard_end = now() - interval '1 h'"
    )
    before = contents()
    assert leases.renew(USING, held) == {}
    assert contents() == before


def test_a_late_renewal_counts_until_the_job_is_taken() -> None:
    held = held_jobs(1)
    pass_time()
    assert set(leases.renew(USING, held)) == set(held)
    assert jobs.reap(USING, 10) is None


def test_renewing_some_jobs_of_a_claim_splits_them_off_under_the_same_token() -> None:
    held = held_jobs(5)
    pass_time(timedelta(seconds=10))
    before = Lease.objects.get()
    some, rest = held[:2], held[2:]
    renewed = leases.renew(USING, some)
    by_jobs = leases_by_jobs()
    apart = by_jobs.pop(frozenset(each.job_id for each in some))
    behind = by_jobs.pop(frozenset(each.job_id for each in rest))
    assert not by_jobs
    assert renewed == dict.fromkeys(some, apart.leased_until)
    assert apart.lease_token == behind.lease_token == before.lease_token
    assert apart.hard_end == behind.hard_end == before.hard_end
    assert apart.claimed_at == before.claimed_at
    assert behind.leased_until == before.leased_until < apart.leased_until


def test_only_the_jobs_left_behind_expire() -> None:
    held = held_jobs(4)
    query("UPDATE pulljobs_lease SET leased_until = clock_timestamp() - '1 s'::interval")
    leases.renew(USING, held[:2])
    finished = jobs.reap(USING, 10)
    assert finished
    assert set(finished.states) == {job.job_id for job in held[2:]}
    assert set(leases.renew(USING, held)) == set(held[:2])


def test_settled_and_killed_jobs_are_not_renewed() -> None:
    held = held_jobs(4)
    jobs.finish(USING, [outcomes.deliver(held[0])])
    jobs.kill(USING, [held[1].job_id], reason=Reason.KILLED)
    assert set(leases.renew(USING, held)) == set(held[2:])
    assert set(leases_by_jobs()) == {frozenset(job.job_id for job in held[2:])}


def test_jobs_of_several_claims_are_renewed_in_one_call() -> None:
    first, other = held_jobs(2), held_jobs(3, lease_duration=timedelta(seconds=99))
    renewed = leases.renew(USING, [first[0], *other])
    assert set(renewed) == {first[0], *other}
    assert renewed[other[0]] > renewed[first[0]]


def test_settling_jobs_that_were_split_off_leaves_the_lease_of_the_others() -> None:
    """Settling jobs that a renewal gave a lease of their own leaves the lease of the others."""
    held = held_jobs(2)
    leases.renew(USING, held[:1])
    jobs.finish(USING, [outcomes.deliver(held[0])])
    assert set(leases_by_jobs()) == {frozenset([held[1].job_id])}
    pass_time()
    finished = jobs.reap(USING, 10)
    assert finished
    assert set(finished.states) == {held[1].job_id}


@pytest.mark.django_db(transaction=True)
def test_a_renewal_beside_another_of_the_same_claim_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = held_jobs(3)
    params = {
        "job_ids": [held[0].job_id],
        "lease_tokens": [held[0].lease_token],
        "lease_duration": None,
        "running": None,
    }
    with session() as other:
        run(other, "renew", params)
        assert leases.renew(USING, held) == {}
        assert leases.still_held(USING, held) == set(held)

        def pauses() -> Iterator[float]:
            """Yield two pauses, and commit the other renewal before the second one."""
            yield 0.0
            other.commit()
            yield 0.001

        monkeypatch.setattr(leases, "LEASE_PAUSES", pauses())
        assert leases.renew(USING, held).keys() == set(held)
