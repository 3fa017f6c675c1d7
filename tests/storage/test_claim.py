"""Jobs of one claim, and their order."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from django.db import transaction

from pulljobs.models import Job, Lease
from pulljobs.publishing import Draft, publish_many
from pulljobs.pulling import Puller
from pulljobs.states import State
from tests.factories import USING, ConsumerFactory, claim_from_head, claimed, published
from tests.sessions import query

pytestmark = pytest.mark.django_db

NOW_OR_BEFORE = datetime(2020, 1, 1, tzinfo=UTC)


def ids(consumer: object, wanted: int = 100) -> list[int]:
    return [held.job_id for held in claimed(consumer, wanted)]  # type: ignore[arg-type]  # a Consumer


def test_higher_priorities_first_and_first_in_first_out_inside_one() -> None:
    consumer = ConsumerFactory.create()
    made = {
        priority: published(consumer, 3, priority=priority)
        for priority in (0, 5, -32768, 32767, -1)
    }
    assert ids(consumer, 10) + ids(consumer, 10) == [
        id for priority in sorted(made, reverse=True) for id in made[priority]
    ]


def test_one_publish_many_keeps_its_order() -> None:
    consumer = ConsumerFactory.create()
    receipts = publish_many(consumer.channel.name, range(2_500))
    assert ids(consumer, 3_000) == [receipt.job_ids[0] for receipt in receipts]


def test_no_more_than_wanted() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 10)
    assert len(ids(consumer, 4)) == 4


def test_a_claim_says_what_it_took() -> None:
    consumer = ConsumerFactory.create(lease_duration=timedelta(seconds=7))
    [job_id] = published(consumer, 1, priority=3)
    node = uuid4()
    claim = claim_from_head(consumer, node_id=node)
    [job] = claim.jobs
    row, lease = Job.objects.get(), Lease.objects.get()
    assert job == (job_id, row.message_id, 3, 0, 1, False)
    assert (row.state, row.deliveries, row.lease_token) == (State.INFLIGHT, 1, lease.lease_token)
    assert claim.taken == (lease.lease_token, lease.leased_until)
    assert lease.leased_until - lease.claimed_at == timedelta(seconds=7)
    assert lease.hard_end - lease.claimed_at == timedelta(seconds=900)
    assert (lease.node_id, lease.via, lease.job_ids) == (node, "worker", [job_id])
    assert row.first_claimed_at == lease.claimed_at


def test_the_ids_of_a_large_claim_are_neither_compressed_nor_stored_elsewhere() -> None:
    """A lease row has ids inline: to compress or move them costs more than the rest of it."""
    consumer = ConsumerFactory.create()
    published(consumer, 1_000)
    claimed(consumer, 1_000)
    [(compression, size)] = query(
        "SELECT pg_column_compression(job_ids), pg_column_size(job_ids) FROM pulljobs_lease"
    )
    assert (compression, size > 8 * 1_000) == (None, True)


def test_a_lease_runs_from_the_clock_not_from_the_start_of_the_transaction() -> None:
    consumer = ConsumerFactory.create()
    published(consumer)
    query("SELECT pg_sleep(0.05)")
    claimed(consumer)
    [(late,)] = query("SELECT claimed_at - now() FROM pulljobs_lease")
    assert late >= timedelta(seconds=0.05)


def test_a_granted_lease_above_the_longest_is_kept() -> None:
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer, lease_duration=timedelta(hours=1))
    lease = Lease.objects.get()
    assert lease.hard_end == lease.leased_until == lease.claimed_at + timedelta(hours=1)


def test_nothing_to_claim_writes_nothing() -> None:
    claim = claim_from_head(ConsumerFactory.create())
    assert (claim.taken, claim.jobs, claim.xid, claim.next_due) == (None, [], None, None)
    assert not Lease.objects.exists()


def test_a_delayed_job_waits_and_the_claim_tells_how_long() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, delay=timedelta(hours=2))
    published(consumer, delay=timedelta(hours=1), priority=-5)
    due = claim_from_head(consumer).next_due
    assert due is not None
    assert timedelta(minutes=59) < due <= timedelta(hours=1)


def test_due_jobs_do_not_wait_behind_delayed_ones_of_a_higher_priority() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 5, delay=timedelta(hours=2), priority=9)
    ready = published(consumer, 2)
    assert ids(consumer) == ready


def test_a_full_claim_tells_no_due_time() -> None:
    consumer = ConsumerFactory.create()
    published(consumer)
    published(consumer, delay=timedelta(hours=1))
    assert claim_from_head(consumer, 1).next_due is None


def test_jobs_of_other_consumers_stay() -> None:
    consumer = ConsumerFactory.create()
    other = ConsumerFactory.create(channel=consumer.channel)
    mine = published(consumer, 3)
    assert ids(consumer) == mine
    assert len(ids(other)) == 3


@pytest.mark.parametrize("paused_row", ["consumer", "channel"])
def test_a_pause_ends_by_itself(paused_row: str) -> None:
    consumer = ConsumerFactory.create()
    paused = consumer if paused_row == "consumer" else consumer.channel
    made = published(consumer)
    paused.paused_until = datetime.now(UTC) + timedelta(hours=1)
    paused.save()
    assert ids(consumer) == []
    paused.paused_until = datetime.now(UTC) - timedelta(hours=1)
    paused.save()
    assert ids(consumer) == made


def test_a_deleted_consumer_gets_nothing() -> None:
    consumer = ConsumerFactory.create()
    published(consumer)
    consumer.deleted_at = datetime.now(UTC)
    consumer.save()
    assert ids(consumer) == []


@pytest.mark.django_db(transaction=True)
def test_new_priorities_are_found_above_between_and_below_the_known() -> None:
    consumer = ConsumerFactory.create()
    puller = Puller(USING, consumer)
    for priorities in ([10, 0], [5, 20, -3], [7, 6, 4, 32767, -32768, 10, 0]):
        drafts = [Draft(payload=b"", priority=priority) for priority in priorities]
        publish_many(consumer.channel.name, drafts)
        taken = [job.priority for job, _message in puller.claim(100).jobs]
        assert taken == sorted(priorities, reverse=True)


@pytest.mark.django_db(transaction=True)
def test_claims_find_jobs_of_more_priorities_than_have_marks() -> None:
    """Claims find jobs of 150 priorities, more than a process keeps low-water marks for."""
    consumer = ConsumerFactory.create()
    puller = Puller(USING, consumer)
    for _round in range(2):
        drafts = [Draft(payload=b"", priority=priority) for priority in range(150)]
        publish_many(consumer.channel.name, drafts)
        taken = [job.priority for _ in range(6) for job, _message in puller.claim(30).jobs]
        assert taken == list(reversed(range(150)))


@pytest.mark.django_db(transaction=True)
def test_a_claim_that_is_rolled_back_loses_nothing() -> None:
    """A process claims the jobs of its rolled-back claim again, despite its low-water marks."""
    consumer = ConsumerFactory.create()
    made = published(consumer, 4)
    puller = Puller(USING, consumer)
    with transaction.atomic(USING):
        assert len(puller.claim(3).jobs) == 3
        transaction.set_rollback(True, using=USING)
    assert [job.id for job, _message in puller.claim(10).jobs] == made


@pytest.mark.django_db(transaction=True)
def test_claimed_jobs_come_with_their_messages() -> None:
    consumer = ConsumerFactory.create()
    drafts = [Draft(payload={"n": n}, headers={"n": str(n)}, message_id=f"m{n}") for n in range(3)]
    receipts = publish_many(consumer.channel.name, drafts)
    claim = Puller(USING, consumer).claim(10)
    for (job, message), receipt, n in zip(claim.jobs, receipts, range(3), strict=True):
        assert (job.id, job.message_id) == (receipt.job_ids[0], receipt.message_id)
        assert message.payload == b'{"n": %d}' % n
        assert (message.headers, message.client_message_id) == ({"n": str(n)}, f"m{n}")
        assert message.content_type == "application/json"
        assert message.published_at.tzinfo is not None


@pytest.mark.django_db(transaction=True)
def test_a_claim_is_a_hot_update_that_writes_no_index_entry() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 500)
    with transaction.atomic(USING):
        before = updates()
        assert len(claimed(consumer, 500)) == 500
        updated, hot = (after - then for after, then in zip(updates(), before, strict=True))
    assert (updated, hot) == (500, 500)


def updates() -> tuple[int, int]:
    """Return how many updates of the job table this transaction made, and how many were HOT."""
    [row] = query(
        "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables"
        " WHERE relname = 'pulljobs_job'"
    )
    return row[0], row[1]
