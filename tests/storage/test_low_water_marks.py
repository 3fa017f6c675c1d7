"""Claims that start where the last one ended leave nothing behind, whatever others do meanwhile."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest
from django.db import connection
from django.utils.timezone import now

from pulljobs.engine import low_water_marks, outcomes
from pulljobs.engine.claiming import claimer, keyed
from pulljobs.engine.outcomes import Held
from pulljobs.engine.sql import statement
from pulljobs.models import Consumer
from pulljobs.pulling import Puller
from pulljobs.storage import jobs
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import Session, lock_timeout, query, run, session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


@pytest.fixture
def puller(consumer: Consumer) -> Puller:
    return Puller(USING, consumer)


@pytest.fixture
def other() -> Iterator[Session]:
    with session() as opened:
        yield opened


def ids(puller: Puller, wanted: int = 100) -> list[int]:
    return [job.id for job, _message in puller.claim(wanted).jobs]


def work_on(puller: Puller, seconds: float = 0.0) -> list[int]:
    """Publish and claim for at least `seconds`, and until the low-water mark has risen.

    Return the ids of the claimed jobs that it did not publish.
    """
    end = now() + timedelta(seconds=seconds)
    foreign: list[int] = []
    for _round in range(1000):
        mine = published(puller.consumer, 3)
        foreign += sorted(set(ids(puller)) - set(mine))
        if now() > end and mark_of(puller) > min(end, now() - timedelta(seconds=0.5)):
            return foreign
        query("SELECT pg_sleep(0.01)")
    raise AssertionError("the low-water marks never rose")


def poll(puller: Puller) -> list[int]:
    """Publish and claim a few jobs. Return the ids of the claimed jobs that it did not publish."""
    mine = [id for _round in range(5) for id in published(puller.consumer, 3)]
    return [id for _round in range(5) for id in ids(puller, 5) if id not in mine]


def mark_of(puller: Puller) -> datetime:
    known = puller._claimer.marks.positions.get(0)
    return known.available_at if known else low_water_marks.BEGINNING


def publish_in(other: Session, consumer: Consumer) -> int:
    [late] = publish_many_in(other, consumer, [None])
    return late


def publish_many_in(other: Session, consumer: Consumer, keys: Sequence[str | None]) -> list[int]:
    params = {
        "channel": consumer.channel.name,
        "producer_id": None,
        "dedupe_window": timedelta(0),
        "only_consumer_id": None,
        "batch_id": None,
        "payloads": [b"late"] * len(keys),
        "content_types": ["text/plain"] * len(keys),
        "headers": ["{}"] * len(keys),
        "keys": list(keys),
        "priorities": [0] * len(keys),
        "client_message_ids": [None] * len(keys),
        "delays": [None] * len(keys),
        "available_ats": [None] * len(keys),
        "costs": [None] * len(keys),
    }
    return [int(job_id) for row in run(other, "publish", params) for job_id in row[1]]


def claim_until(puller: Puller, job_id: int) -> None:
    wait_until(lambda: job_id in ids(puller))


def test_low_water_marks_rise(puller: Puller) -> None:
    begun = now()
    work_on(puller, 0.5)
    assert mark_of(puller) > begun


def test_a_job_that_commits_late_is_found(
    puller: Puller, consumer: Consumer, other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The low-water mark stays below a job whose transaction is open for a short time."""
    monkeypatch.setattr(low_water_marks, "PATIENCE", timedelta(minutes=10))
    late = publish_in(other, consumer)
    for _round in range(5):
        published(consumer, 3)
        assert late not in ids(puller)
    other.commit()
    assert ids(puller) == [late]


def test_a_job_that_commits_late_is_found_below_the_mark(
    puller: Puller, consumer: Consumer, other: Session
) -> None:
    work_on(puller)
    late = publish_in(other, consumer)
    work_on(puller, low_water_marks.PATIENCE.total_seconds() * 1.5)
    [(published_at,)] = other.execute(
        "SELECT available_at FROM pulljobs_job WHERE id = %s", [late]
    ).fetchall()
    assert mark_of(puller) > published_at
    other.commit()
    claim_until(puller, late)


def test_all_that_commits_long_after_is_found_behind_many_jobs_of_few_keys(
    other: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that commits late is found behind a hundred late jobs of another key."""
    monkeypatch.setattr(keyed, "LEAST_SEEN", 100)
    puller = Puller(USING, ConsumerFactory.create(exclusive_keys=True))
    work_on(puller)
    *_first, last = publish_many_in(other, puller.consumer, ["a"] * 100 + ["b"])
    work_on(puller, low_water_marks.PATIENCE.total_seconds() * 1.5)
    other.commit()
    claim_until(puller, last)


def test_a_transaction_older_than_the_process_is_waited_for(
    puller: Puller, consumer: Consumer, other: Session
) -> None:
    late = publish_in(other, consumer)
    work_on(puller, low_water_marks.PATIENCE.total_seconds() * 1.5)
    other.commit()
    claim_until(puller, late)


def test_several_that_commit_late_are_found_each_after_its_commit(
    puller: Puller, consumer: Consumer
) -> None:
    work_on(puller)
    with ExitStack() as stack:
        late = []
        for _number in range(3):
            opened = stack.enter_context(session())
            late.append((opened, publish_in(opened, consumer)))
            work_on(puller)
        work_on(puller, low_water_marks.PATIENCE.total_seconds() * 1.5)
        for opened, job_id in reversed(late):
            opened.commit()
            claim_until(puller, job_id)


def test_a_search_below_the_mark_claims_no_delayed_job(
    puller: Puller, consumer: Consumer, other: Session
) -> None:
    """A search below the low-water mark claims no delayed job, however large its range of time."""
    [delayed] = published(consumer, delay=timedelta(minutes=10))
    work_on(puller)
    late = publish_in(other, consumer)
    work_on(puller, low_water_marks.PATIENCE.total_seconds() * 1.5)
    other.commit()
    puller._claimer.marks.slice = timedelta(hours=1)
    claim_until(puller, late)
    assert delayed not in ids(puller)
    assert query("SELECT state FROM pulljobs_job WHERE id = %s", [delayed]) == [("QUEUED",)]


def test_what_came_while_the_clock_was_set_back_is_found(
    puller: Puller, consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that sees the clock behind its monotonic clock searches below its mark again."""
    work_on(puller)
    [job] = published(consumer)
    before = mark_of(puller) - timedelta(milliseconds=1)
    query("UPDATE pulljobs_job SET available_at = %s WHERE id = %s", [before, job])
    assert ids(puller) == []
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + 0.5)
    monkeypatch.setattr(claimer, "time", clock)
    claim_until(puller, job)


@pytest.fixture
def pooled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connection.settings_dict, "DISABLE_SERVER_SIDE_CURSORS", True)


@pytest.fixture
def another_server() -> Iterator[Callable[[], None]]:
    """Return a function that makes this connection look as if it led to another server."""

    def change() -> None:
        query("CREATE SCHEMA elsewhere")
        query(
            "CREATE FUNCTION elsewhere.pg_postmaster_start_time() RETURNS timestamptz"
            " LANGUAGE sql AS $$ SELECT timestamptz 'epoch' $$"
        )
        query("SET search_path = elsewhere, pg_catalog, public")

    yield change
    query("RESET search_path")
    query("DROP SCHEMA IF EXISTS elsewhere CASCADE")


@pytest.mark.usefixtures("pooled")
def test_what_a_failover_behind_a_pooler_undid_is_claimed_again(
    puller: Puller, consumer: Consumer, another_server: Callable[[], None]
) -> None:
    """Low-water marks are forgotten when the server behind the same connection is another one."""
    [job] = published(consumer)
    assert ids(puller) == [job]
    work_on(puller)
    query(
        "UPDATE pulljobs_job SET state = 'QUEUED', lease_token = NULL, deliveries = 0"
        " WHERE id = %s",
        [job],
    )
    assert ids(puller) == []
    another_server()
    assert ids(puller) == [job]


def lock(other: Session, job_id: int) -> None:
    other.execute("SELECT FROM pulljobs_job WHERE id = %s FOR UPDATE", [job_id])


@pytest.mark.parametrize("place", [0, 2, 4])
def test_a_locked_job_is_passed_without_waiting_and_found_when_it_is_unlocked(
    puller: Puller, consumer: Consumer, other: Session, place: int
) -> None:
    made = published(consumer, 5)
    lock(other, made[place])
    with lock_timeout("1s"):
        assert ids(puller) == made[:place] + made[place + 1 :]
    assert poll(puller) == []
    other.rollback()
    assert ids(puller) == [made[place]]


@pytest.mark.parametrize("priorities", ["one", "several"])
def test_a_locked_job_in_a_long_queue_is_found_when_it_is_unlocked(
    puller: Puller, consumer: Consumer, other: Session, priorities: str
) -> None:
    """A claim that skips a locked job returns to it, even if the job is older than any claim."""
    left = published(consumer, 1_000)
    if priorities == "several":
        published(consumer, priority=-1)
    while mark_of(puller) == low_water_marks.BEGINNING:
        assert ids(puller, 5) == left[:5]
        left = left[5:]
        query("SELECT pg_sleep(0.02)")
    lock(other, left[7])
    assert [id for _round in range(6) for id in ids(puller, 5)] == left[:7] + left[8:31]
    other.rollback()
    assert ids(puller, 5) == [left[7], *left[31:35]]


def test_all_locked_jobs_are_found_when_they_are_unlocked(
    puller: Puller, consumer: Consumer, other: Session
) -> None:
    work_on(puller)
    made = published(consumer, 5)
    for job_id in made:
        lock(other, job_id)
    assert ids(puller) == []
    poll(puller)
    other.rollback()
    assert ids(puller) == made


def test_a_claim_of_another_process_that_fails_gives_its_jobs_to_us(
    puller: Puller, consumer: Consumer, other: Session
) -> None:
    made = published(consumer, 5)
    claim = Puller(USING, consumer)
    entry = claim._claimer.marks.entry_above()
    run(
        other,
        "claim",
        {
            "consumer_id": consumer.pk,
            "wanted": 3,
            "node_id": None,
            "via": "worker",
            "lease_duration": None,
            "max_lease": timedelta(minutes=1),
            "request_id": None,
            "guarded": False,
            **entry._asdict(),
        },
    )
    assert ids(puller) == made[3:]
    assert poll(puller) == []
    other.rollback()
    assert ids(puller) == made[:3]


def test_a_locked_job_below_the_mark_is_claimed_once_it_is_unlocked(
    puller: Puller, consumer: Consumer, other: Session
) -> None:
    """A late job that is locked while a search below the mark finds it is claimed afterwards."""
    work_on(puller)
    late = publish_in(other, consumer)
    work_on(puller, low_water_marks.PATIENCE.total_seconds() * 1.5)
    with session() as locker:
        other.commit()
        lock(locker, late)
        work_on(puller)
        wait_until(lambda: not puller.claim(10).more)
        locker.rollback()
    claim_until(puller, late)


def test_low_water_marks_are_forgotten_with_the_connection(
    puller: Puller, consumer: Consumer
) -> None:
    work_on(puller)
    before = mark_of(puller)
    query(
        "UPDATE pulljobs_job SET state = 'QUEUED', lease_token = NULL"
        " WHERE id IN (SELECT min(id) FROM pulljobs_job)"
    )
    assert ids(puller) == []
    connection.close()
    assert len(ids(puller)) == 1
    assert mark_of(puller) < before


def test_jobs_given_back_are_above_every_low_water_mark(puller: Puller, consumer: Consumer) -> None:
    claim = puller.claim(10)
    made = published(consumer, 4)
    claim = puller.claim(10)
    assert claim.taken
    work_on(puller)
    held = [Held(id, claim.taken.lease_token) for id in made]
    jobs.finish(
        USING,
        [
            outcomes.release(held[0]),
            outcomes.retry(held[1], "again"),
            outcomes.retry(held[2], "again", after=timedelta(0)),
            outcomes.retry(held[3], "again", after=timedelta(seconds=-60)),
        ],
    )
    assert sorted(ids(puller)) == made


def test_statements_that_make_jobs_available_have_their_transaction_before_the_clock() -> None:
    """Statements that make jobs available get a transaction id before they read the clock."""
    publishing = ("publish", "publish_batch", "publish_one", "publish_staged")
    for name in (*publishing, "finish", "free_keys", "replace"):
        assert "pg_current_xact_id()" in statement(name), name
    _message, job = statement("publish_plain").split("INSERT INTO pulljobs_job")
    # A row of the message is there by then, and so the transaction has its id.
    assert job.index("clock_timestamp()") < job.index("FROM message")
