"""A listing shows every available job, although it enters the index at the low-water mark."""

import random
import threading
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from django.db import transaction

from pulljobs import pulling
from pulljobs.api.broker import listing
from pulljobs.api.broker.listing import ConsumerListing
from pulljobs.engine import outcomes
from pulljobs.engine.low_water_marks import CLAIM_SPACING, PATIENCE, Entry
from pulljobs.engine.outcomes import Held
from pulljobs.engine.sql import statement
from pulljobs.models import Consumer, Job
from pulljobs.publishing import Draft, publish, publish_many
from pulljobs.storage import protocol
from pulljobs.storage.protocol import Listed, Place
from tests.factories import USING, ConsumerFactory
from tests.sessions import PATIENCE_SECONDS, Thread, at_once, query, session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


def waiting(consumer: Consumer) -> list[int]:
    """Return the ids of the available jobs in the order of claims, as the table has them."""
    rows = query(
        "SELECT id FROM pulljobs_job WHERE consumer_id = %s AND state = 'QUEUED'"
        " AND available_at <= clock_timestamp() ORDER BY priority DESC, available_at, id",
        [consumer.pk],
    )
    return [id for (id,) in rows]


def listed(queue: ConsumerListing, size: int = 50) -> list[int]:
    """Return the ids of the jobs on all pages of a listing."""
    seen: list[int] = []
    after: Place | None = None
    while page := queue.list_jobs(size, after):
        seen += [job.id for job in page]
        after = page[-1].place
    return seen


def settle(consumer: Consumer, wanted: int) -> None:
    claim = pulling.Puller(USING, consumer).claim(wanted)
    if claim.taken:
        held = [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
        pulling.finish([outcomes.deliver(lease) for lease in held])


def test_a_long_transaction_that_ends_is_seen_at_once(consumer: Consumer) -> None:
    """Low-water marks rise above a long transaction's job, but a listing after its end shows it."""
    queue = ConsumerListing(USING, consumer.pk)
    publish(consumer.channel.name, b"keeps the floor of its priority", delay=timedelta(hours=1))
    started: list[bool] = []
    end: list[bool] = []

    def slow() -> None:
        with transaction.atomic(USING):
            publish(consumer.channel.name, b"late")
            started.append(True)
            wait_until(lambda: bool(end))

    slowly = Thread(slow)
    wait_until(lambda: bool(started))
    deadline = time.monotonic() + (2 * PATIENCE).total_seconds()
    while time.monotonic() < deadline:
        publish(consumer.channel.name, b"quick")
        settle(consumer, 10)
        assert listed(queue) == waiting(consumer) == []
    end.append(True)
    slowly.result()
    assert len(waiting(consumer)) == 1
    assert listed(queue) == waiting(consumer)


def test_a_short_transaction_is_seen_too(consumer: Consumer) -> None:
    """Low-water marks stay below the job of a short transaction, however often jobs are listed."""
    queue = ConsumerListing(USING, consumer.pk)
    publish(consumer.channel.name, b"keeps the floor of its priority", delay=timedelta(hours=1))
    listed(queue)
    written, end = threading.Event(), threading.Event()

    def publish_slowly() -> None:
        with transaction.atomic(USING):
            publish(consumer.channel.name, b"x")
            written.set()
            end.wait(PATIENCE_SECONDS)

    slowly = Thread(publish_slowly)
    assert written.wait(PATIENCE_SECONDS)
    for _ in range(4):
        time.sleep(CLAIM_SPACING.total_seconds())  # as listings do that are marked one by one
        assert listed(queue) == []
    end.set()
    slowly.result()
    assert len(listed(queue)) == 1


def test_what_comes_back_is_seen(consumer: Consumer) -> None:
    """Jobs that were released or retried are listed again."""
    queue = ConsumerListing(USING, consumer.pk)
    publish_many(consumer.channel.name, [b"x"] * 10)
    for _ in range(3):
        claim = pulling.Puller(USING, consumer).claim(4)
        assert listed(queue) == waiting(consumer)
        assert claim.taken
        held = [Held(job.id, claim.taken.lease_token) for job, _message in claim.jobs]
        pulling.finish([outcomes.release(held[0]), outcomes.retry(held[1], "", after=timedelta())])
        pulling.finish([outcomes.reject(held[2], "no good")])
        assert listed(queue) == waiting(consumer)


def test_a_listing_inside_a_transaction_learns_nothing(consumer: Consumer) -> None:
    """A listing in a transaction raises no low-water mark, as a rollback undoes settlements."""
    publish_many(consumer.channel.name, [b"x"] * 5)
    before = listing.queued(consumer.pk, 10)
    with transaction.atomic(USING):
        settle(consumer, 3)
        for _listing in range(5):  # the first may learn nothing, because the transaction is older
            assert len(listing.queued(consumer.pk, 10)) == 2
        transaction.set_rollback(True, using=USING)
    assert listing.queued(consumer.pk, 10) == before
    assert len(before) == 5


def test_among_publishers_and_workers_nothing_is_left_out(consumer: Consumer) -> None:
    """Threads publish at several priorities, claim, release and list. Then every job is listed."""
    queue = ConsumerListing(USING, consumer.pk)

    def busy(number: int) -> None:
        chance = random.Random(number)
        until = time.monotonic() + 1.5
        while time.monotonic() < until:
            with transaction.atomic(USING):
                for _ in range(3):
                    publish(consumer.channel.name, b"x", priority=chance.choice([0, 0, 5, -3]))
                time.sleep(chance.choice([0, 0, 0.01, 0.2]))
            settle(consumer, chance.randrange(6))
            _release_some(consumer)
            listed(queue)

    for _round in range(2):
        at_once(4, busy)
        assert listed(queue) == waiting(consumer)
        assert listed(ConsumerListing(USING, consumer.pk)) == waiting(consumer)


def _release_some(consumer: Consumer) -> None:
    claim = pulling.Puller(USING, consumer).claim(2)
    if claim.taken:
        token = claim.taken.lease_token
        pulling.finish([outcomes.release(Held(job.id, token)) for job, _message in claim.jobs])


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> list[Entry]:
    """Positions at which listings have entered the index."""
    seen: list[Entry] = []
    queued = protocol.queued

    def spied(using: str, consumer_id: int, wanted: int, entry: Entry) -> Listed:
        seen.append(entry)
        return queued(using, consumer_id, wanted, entry)

    monkeypatch.setattr(protocol, "queued", spied)
    return seen


@pytest.fixture
def snapshot() -> Iterator[None]:
    """Open snapshot, because of which vacuum cannot remove the rows of settled jobs."""
    with session() as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT count(*) FROM pulljobs_job")
        yield


@pytest.mark.usefixtures("snapshot")
def test_what_was_settled_is_not_waded_through(consumer: Consumer, entries: list[Entry]) -> None:
    """A listing does not read the rows of thousands of settled jobs that vacuum has not removed."""
    for priority in range(10):
        publish_many(consumer.channel.name, [Draft(payload=b"x", priority=priority)] * 600)
    queue = ConsumerListing(USING, consumer.pk)
    queue.list_jobs(25, None)
    fresh = _blocks(consumer, entries[-1])
    for _ in range(10):
        settle(consumer, 400)
    assert Job.objects.count() == 2_000
    assert 2 * fresh < _blocks(consumer, entries[0])

    def is_quick_again() -> bool:
        """Return True if a listing reads few blocks again.

        Older transactions on the server keep the low-water marks down for a while.
        """
        assert [job.id for job in queue.list_jobs(25, None)] == waiting(consumer)[:25]
        return _blocks(consumer, entries[-1]) < 2 * fresh

    wait_until(is_quick_again)


def _blocks(consumer: Consumer, entry: Entry) -> int:
    """Return the number of blocks that a listing reads which enters the index at this position."""
    where = entry._asdict()
    del where["until"]
    params = {"consumer_id": consumer.pk, "wanted": 25, **where}
    [(plan,)] = query(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement('queued')}", params)  # type: ignore[arg-type]  # by name
    plan = plan[0]["Plan"]
    return int(plan["Shared Hit Blocks"]) + int(plan["Shared Read Blocks"])
