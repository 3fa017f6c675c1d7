"""A row that another transaction keeps locked delays its own job, and nothing else."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import OperationalError, connections

from pulljobs import loops
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held, Settlement
from pulljobs.models import ArchivedJob, Consumer, Job, Lease, Node, PullWaiter
from pulljobs.pulling import Puller
from pulljobs.registering import put_limit_group
from pulljobs.states import State
from pulljobs.storage import invariants, jobs, leases, listen, nodes, sessions, turns
from pulljobs.storage.invariants import CheckLimits
from pulljobs.storage.rows import Finished
from pulljobs.storage.sessions import LONGEST_SECONDS
from pulljobs.worker.reaper import Reaper
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.keyed import claim, exclusive, queued
from tests.sessions import (
    PATIENCE_SECONDS,
    Session,
    Thread,
    blocked_by,
    pass_time,
    query,
    session,
    states,
    wait_until,
)
from tests.turns import fair
from tests.worker.claiming import limits

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.timeout(60)]
NODE = UUID(int=7)
LONG = timedelta(minutes=1)


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create(retry_strategy="constant:60")


def held_jobs(consumer: Consumer, *claims: int) -> list[list[Held]]:
    """Publish jobs, claim them in claims of these sizes, and return the jobs of each claim."""
    published(consumer, sum(claims))
    return [claimed(consumer, count, node_id=NODE) for count in claims]


def lock_row(other: Session, job: Held) -> None:
    other.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [job.job_id])


def test_the_reaper_returns_the_other_jobs_of_the_lease_and_other_leases(
    consumer: Consumer,
) -> None:
    [[locked, *free], others] = held_jobs(consumer, 3, 2)
    pass_time()
    with session() as other:
        lock_row(other, locked)
        finished = jobs.reap(USING, 10)
        assert finished is not None
        assert set(finished.states) == {job.job_id for job in free + others}
        assert jobs.reap(USING, 10) is None, "the reaper does not meet the lease again at once"
    assert states()[locked.job_id] == "INFLIGHT"
    wait_until(lambda: jobs.reap(USING, 10) is not None)
    assert set(states().values()) == {"QUEUED"}
    assert not Lease.objects.exists()


def test_a_lease_that_the_reaper_puts_off_breaks_no_invariant(consumer: Consumer) -> None:
    """`verify` accepts a lease that is prolonged beyond its hard end while its job is locked."""
    [[locked]] = held_jobs(consumer, 1)
    query("UPDATE pulljobs_lease SET claimed_at = claimed_at - interval '1 h'")
    query("UPDATE pulljobs_lease SET leased_until = claimed_at, hard_end = claimed_at")
    with session() as other:
        lock_row(other, locked)
        jobs.reap(USING, 10)
        lease = Lease.objects.get()
        assert lease.leased_until > lease.hard_end
        checks = CheckLimits(None, page_timeout=LONG, overdue=LONG, retention=None)
        assert invariants.check_once(USING, checks).broken == {}


def test_the_jobs_of_a_dead_node_are_given_back_but_for_the_locked_one(
    consumer: Consumer,
) -> None:
    [[locked, ran, waited], others] = held_jobs(consumer, 3, 2)
    started = frozenset({locked.job_id, ran.job_id})
    with session() as other:
        lock_row(other, locked)
        finished = jobs.abandon(USING, NODE, started)
        assert finished is not None
        assert set(finished.states) == {job.job_id for job in [ran, waited, *others]}
    wait_until(lambda: jobs.reap(USING, 10) is not None)
    charged = Job.objects.filter(retry_count=1, suspect=True).values_list("id", flat=True)
    assert set(charged) == started


@pytest.mark.parametrize("settle", [outcomes.deliver, lambda job: outcomes.retry(job, "again")])
@pytest.mark.parametrize("is_dedicated", [True, False])
def test_other_outcomes_are_written_while_a_row_is_locked(
    consumer: Consumer, settle: Callable[[Held], Settlement], is_dedicated: bool
) -> None:
    [[locked, *free]] = held_jobs(consumer, 3)
    batch = [settle(job) for job in [locked, *free]]

    def finish() -> Finished:
        if is_dedicated:
            sessions.dedicate(USING)
        return jobs.finish(USING, batch)

    with session() as other:
        lock_row(other, locked)
        finished = Thread(finish).result()
        assert finished.states.keys() == {job.job_id for job in free}
        assert (set(finished.locked), finished.lost) == ({locked.job_id}, [])
    again = jobs.finish(USING, batch[:1])
    assert again.states.keys() == {locked.job_id}


def test_deliveries_of_several_claims_lock_the_jobs_of_the_first_claim_first(
    consumer: Consumer,
) -> None:
    """Deliveries lock the jobs of the first claim first, in whatever order the outcomes come.

    Otherwise a batch and a transaction that locks jobs by id could wait for each other.
    """
    first, second = held_jobs(consumer, 45, 45)
    batch = list(map(outcomes.deliver, [*second, *first]))
    with session() as other:
        lock_row(other, first[0])
        finishing = Thread(lambda: jobs.finish(USING, batch))
        wait_until(lambda: blocked_by(other))
        other.execute("SET LOCAL lock_timeout = '200ms'")
        lock_row(other, second[0])
    assert len(finishing.result().states) == 90


def test_an_attempt_that_skips_locked_rows_waits_for_nothing(consumer: Consumer) -> None:
    [[locked, free, gone]] = held_jobs(consumer, 3)
    jobs.kill(USING, [gone.job_id], reason="killed")
    batch = [outcomes.deliver(job) for job in (locked, free, gone)]
    with session() as other:
        lock_row(other, locked)
        finished = jobs.finish(USING, batch, skip_locked=True)
    assert finished.states == {free.job_id: State.DELIVERED}
    assert (set(finished.locked), finished.lost) == ({locked.job_id}, [gone.job_id])
    assert [row.job_id for row in ArchivedJob.objects.filter(state="DELIVERED")] == [free.job_id]


def limited_in_three_ways() -> dict[str, Consumer]:
    """Return consumers with a rate of their own, of a group and of each key, by its table."""
    group, _change = put_limit_group("vendor", {"rate": "9/h", "rate_burst": 9})
    return {
        "pulljobs_flow_bucket WHERE group_id = 0": ConsumerFactory.create(rate="9/h", rate_burst=9),
        "pulljobs_flow_bucket WHERE group_id <> 0": ConsumerFactory.create(limit_group=group),
        "pulljobs_flow_key": ConsumerFactory.create(
            rate="9/h", rate_burst=9, rate_per_key=True, lease_duration=LONG
        ),
    }


@pytest.mark.parametrize("number", range(3))
def test_a_locked_rate_delays_only_the_releases_that_give_it_tokens(
    consumer: Consumer, number: int
) -> None:
    table, rated = list(limited_in_three_ways().items())[number]
    [[free]], [job_id] = held_jobs(consumer, 1), published(rated, key="k")
    [released] = claim(rated)
    batch = [outcomes.release(released), outcomes.deliver(free)]
    with session() as other:
        other.execute(f"SELECT FROM {table} FOR UPDATE")
        finished = jobs.finish(USING, batch, skip_locked=True)
        assert finished.states == {free.job_id: State.DELIVERED}
        assert (set(finished.locked), finished.lost) == ({job_id}, [])
    assert jobs.finish(USING, batch[:1]).states == {job_id: State.QUEUED}


def test_jobs_of_a_dead_node_wait_for_no_locked_rate(consumer: Consumer) -> None:
    rated = ConsumerFactory.create(rate="9/h", rate_burst=9)
    [[free]], [job_id] = held_jobs(consumer, 1), published(rated)
    Puller(USING, rated, node_id=NODE).claim(1)
    with session() as other:
        other.execute("SELECT FROM pulljobs_flow_bucket FOR UPDATE")
        jobs.abandon(USING, NODE, frozenset())
    assert states() == {free.job_id: "QUEUED", job_id: "INFLIGHT"}
    jobs.abandon(USING, NODE, frozenset())
    assert states() == {free.job_id: "QUEUED", job_id: "QUEUED"}


def test_jobs_of_a_dead_node_are_released_although_a_claim_has_their_rate_locked() -> None:
    """The release of a dead node's jobs waits for their locked rate, and counts no delivery."""
    rated = ConsumerFactory.create(rate="9/h", rate_burst=9)
    job_id = published(rated)[0]
    Puller(USING, rated, node_id=NODE).claim(1)
    with session() as other:
        other.execute("SELECT FROM pulljobs_flow_bucket FOR UPDATE")
        abandoning = Thread(lambda: jobs.abandon(USING, NODE, frozenset()))
        wait_until(lambda: blocked_by(other) or not abandoning.is_alive())
        other.rollback()
        assert abandoning.result().states == {job_id: State.QUEUED}
    assert Job.objects.get().deliveries == 0


def test_an_attempt_that_skips_locked_rows_waits_briefly_for_the_key_of_a_job(
    consumer: Consumer,
) -> None:
    """`finish` with `skip_locked` settles a job whose key stays locked, after a short wait."""
    keyed = exclusive()
    [[free]], [job_id] = held_jobs(consumer, 1), queued(keyed, "k")
    batch = [outcomes.deliver(job) for job in (free, *claim(keyed))]
    with session() as other:
        other.execute("SELECT FROM pulljobs_exclusive_key FOR UPDATE")
        started = time.monotonic()
        finished = jobs.finish(USING, batch, skip_locked=True)
        assert finished.states.keys() == {free.job_id, job_id}
        assert time.monotonic() - started < LONGEST_SECONDS / 2


def test_a_renewal_waits_neither_for_a_job_nor_for_another_lease(consumer: Consumer) -> None:
    [[locked], others] = held_jobs(consumer, 1, 2)
    before = {lease.pk: lease.leased_until for lease in Lease.objects.all()}
    with session() as other:
        lock_row(other, locked)
        other.execute(
            "SELECT FROM pulljobs_lease WHERE lease_token = %s FOR UPDATE", [locked.lease_token]
        )
        renewed = leases.renew(USING, [locked, *others])
        assert renewed.keys() == set(others)
        assert leases.still_held(USING, [locked]) == {locked}
    assert leases.renew(USING, [locked]).keys() == {locked}
    assert all(lease.leased_until > before[lease.pk] for lease in Lease.objects.all())


@pytest.mark.own_session
def test_a_loop_of_a_worker_waits_for_no_lock_without_a_bound(consumer: Consumer) -> None:
    """A statement of a loop that waits for a locked row fails after a time limit."""
    [[locked]] = held_jobs(consumer, 1)

    def kill() -> None:
        sessions.dedicate(USING)
        jobs.kill(USING, [locked.job_id], reason="killed")

    with session() as other:
        lock_row(other, locked)
        with pytest.raises(OperationalError, match="lock timeout"):
            Thread(kill).result()


def test_a_weight_waits_for_a_locked_key_with_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "LONGEST_SECONDS", 0.3)
    fair_consumer = fair()
    turns.set_weight(USING, fair_consumer.pk, "a", 2)
    with session() as other:
        other.execute("SELECT FROM pulljobs_flow_key FOR UPDATE")
        with pytest.raises(OperationalError, match="canceling statement"):
            Thread(lambda: turns.set_weight(USING, fair_consumer.pk, "a", 3)).result()


def test_an_operator_waits_for_a_locked_job_with_a_bound(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LONGEST_SECONDS", 0.3)
    [[locked]] = held_jobs(consumer, 1)
    with session() as other:
        lock_row(other, locked)
        with pytest.raises(OperationalError, match="canceling statement"):
            Thread(lambda: jobs.kill(USING, [locked.job_id], reason="killed")).result()


@contextmanager
def behind_a_pooler() -> Iterator[None]:
    """Treat this thread's connection as that of a worker's loop behind a pooler."""
    known = connections[USING].settings_dict
    connections[USING].settings_dict = {**known, "DISABLE_SERVER_SIDE_CURSORS": True}
    sessions.dedicate(USING)
    yield


def test_outcomes_are_written_behind_a_pooler_while_the_row_of_their_key_is_locked() -> None:
    """The settlement does not wait for the lock of the key, which a sweep frees later."""
    consumer = exclusive()
    queued(consumer, "a")
    [held] = claim(consumer)

    def finish() -> Finished:
        with behind_a_pooler():
            return jobs.finish(USING, [outcomes.deliver(held)])

    with session() as other:
        other.execute("SELECT FROM pulljobs_exclusive_key FOR UPDATE")
        assert Thread(finish).result().states == {held.job_id: State.DELIVERED}


def test_a_claim_in_a_loop_behind_a_pooler_waits_for_its_turn_with_a_bound() -> None:
    consumer = ConsumerFactory.create(max_in_flight=1)
    published(consumer)

    def claim_one() -> None:
        with behind_a_pooler():
            Puller(USING, consumer).claim(1)

    with session() as other:
        other.execute("SELECT FROM pulljobs_consumer FOR UPDATE")
        with pytest.raises(OperationalError, match="lock timeout"):
            Thread(claim_one).result()


@pytest.mark.parametrize("is_pooled", [True, pytest.param(False, marks=pytest.mark.own_session)])
def test_a_statement_of_djangos_own_in_a_loop_has_a_bound(
    consumer: Consumer, is_pooled: bool
) -> None:
    """A query of the ORM on a worker's connection fails if it waits too long for a row."""

    def rename() -> None:
        with behind_a_pooler() if is_pooled else nullcontext():
            sessions.dedicate(USING)
            with sessions.bounded_pass(USING, 0.2 if is_pooled else PATIENCE_SECONDS):
                Consumer.objects.update(title="changed")

    with session() as other:
        other.execute("SELECT FROM pulljobs_consumer FOR UPDATE")
        with pytest.raises(OperationalError, match="canceling statement"):
            Thread(rename).result()


def test_a_locked_row_of_a_process_or_of_its_waiters_keeps_no_loop() -> None:
    """Heartbeats and registrations of waiters are skipped while their rows are locked."""
    consumers = [ConsumerFactory.create().pk for _ in range(2)]
    nodes.register(USING, NODE, "host:1")
    listen.wait(USING, consumers[:1], NODE, timedelta(seconds=1))

    def loop() -> None:
        assert not nodes.beat(USING, NODE, {"held": 1})
        assert listen.wait(USING, consumers, NODE, LONG) == dict.fromkeys(consumers, 0)
        nodes.stop(USING, NODE)

    with session() as other:
        other.execute("SELECT FROM pulljobs_node FOR UPDATE")
        other.execute("SELECT FROM pulljobs_pull_waiter FOR UPDATE")
        Thread(loop).result()
    assert list(PullWaiter.objects.values_list("consumer_id", flat=True)) == consumers[:1]
    assert nodes.beat(USING, NODE)
    nodes.stop(USING, NODE)
    assert not PullWaiter.objects.exists()
    assert Node.objects.get().stopped_at is not None


def test_a_process_without_a_row_is_not_kept_by_a_lock() -> None:
    assert nodes.beat(USING, NODE)


def test_the_reaper_reaps_while_the_row_of_its_process_is_locked(consumer: Consumer) -> None:
    held_jobs(consumer, 1)
    pass_time()
    nodes.register(USING, NODE, "host:1")
    beats: list[int] = []
    reaper = Reaper(limits(), NODE, lambda: None, dict, lambda: beats.append(1))
    with session() as other:
        other.execute("SELECT FROM pulljobs_node FOR UPDATE")
        Thread(reaper.tick).result()
    assert not Lease.objects.exists()
    assert not beats
    wait_until(lambda: reaper.tick() >= 0 and bool(beats))


def test_a_part_of_a_pass_that_waits_for_a_lock_in_vain_stops_no_other_part(
    consumer: Consumer,
) -> None:
    [[locked]] = held_jobs(consumer, 1)
    done: list[str] = []

    def wait_in_vain() -> bool:
        jobs.kill(USING, [locked.job_id], reason="killed")
        return False

    def work() -> bool:
        done.append("work")
        return False

    def loop() -> None:
        sessions.dedicate(USING)
        with sessions.bounded_pass(USING, 0.2):
            loops.repeat_each([wait_in_vain, work])

    with session() as other:
        lock_row(other, locked)
        with pytest.raises(OperationalError):
            Thread(loop).result()
    assert done == ["work"]


def test_jobs_that_run_on_a_silent_node_are_charged_when_their_lease_ends(
    consumer: Consumer,
) -> None:
    [[running, waiting]] = held_jobs(consumer, 2)
    leases.note_running(USING, NODE, [running.job_id])
    leases.note_running(USING, uuid4(), [waiting.job_id])
    pass_time()
    assert jobs.reap(USING, 10)
    charged = {(job.id, job.retry_count, job.suspect) for job in Job.objects.all()}
    assert charged == {(running.job_id, 1, True), (waiting.job_id, 0, False)}
