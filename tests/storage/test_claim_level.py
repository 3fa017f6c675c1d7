"""While all waiting jobs have one priority, a shorter statement claims the same jobs."""

from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from django.utils.timezone import now

from pulljobs.engine import low_water_marks, outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.engine.sql import Params
from pulljobs.ids import first_of
from pulljobs.models import Consumer
from pulljobs.publishing import BATCH, Draft, publish_many
from pulljobs.pulling import FEW, Puller
from pulljobs.storage import jobs, messages, statements
from pulljobs.storage.rows import Refusal, StoredMessage
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import query, session, wait_until
from tests.storage.test_low_water_marks import ids, lock, mark_of, work_on

pytestmark = pytest.mark.django_db(transaction=True)
LARGE = 51
"""Size of a claim from which on a full one does not look for jobs that it skipped as locked."""


@pytest.fixture
def puller() -> Puller:
    """Return a `Puller` that already has a low-water mark, as after a while of work."""
    puller = Puller(USING, ConsumerFactory.create())
    work_on(puller)
    return puller


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the growing list of the names of the statements that ran."""
    names: list[str] = []
    run = statements.AliasSession.run

    def noted(session: statements.AliasSession, name: str, params: Params) -> object:
        names.append(name)
        return run(session, name, params)

    monkeypatch.setattr(statements.AliasSession, "run", noted)
    return names


@pytest.fixture
def read_apart(monkeypatch: pytest.MonkeyPatch) -> list[Sequence[int]]:
    """Return the growing list of the message ids that separate statements read after a claim."""
    every: list[Sequence[int]] = []
    original = messages.read_messages

    def noted(using: str, ids: Sequence[int]) -> dict[int, StoredMessage]:
        every.append(ids)
        return original(using, ids)

    monkeypatch.setattr(messages, "read_messages", noted)
    return every


def test_it_claims_alone(puller: Puller, ran: list[str]) -> None:
    made = published(puller.consumer, 3)
    assert ids(puller, 2) == made[:2]
    claim = puller.claim(2)
    assert [(job.id, job.priority, job.deliveries) for job, _message in claim.jobs] == [
        (made[2], 0, 1)
    ]
    assert puller.claim(2).taken is None
    assert ran == ["claim_level"] * 3


def test_what_was_claimed_before_keeps_its_story_among_new_ones(
    puller: Puller, ran: list[str]
) -> None:
    made = published(puller.consumer, 3)
    claim = puller.claim(1)
    assert claim.taken
    jobs.finish(
        USING, [outcomes.retry(Held(made[0], claim.taken.lease_token), "", after=timedelta())]
    )
    claim = puller.claim(3)
    story = {job.id: (job.retry_count, job.deliveries) for job, _message in claim.jobs}
    assert story == {made[0]: (1, 2), made[1]: (0, 1), made[2]: (0, 1)}
    assert ran == ["claim_level"] * 2


def test_a_small_claim_after_a_small_one_brings_the_messages(
    puller: Puller, ran: list[str], read_apart: list[Sequence[int]]
) -> None:
    draft = Draft(payload={"a": 1}, headers={"b": "c"}, key="k", message_id="m")
    receipts = publish_many(puller.consumer.channel.name, [draft, b"plain"])
    claimed = puller.claim(5).jobs
    assert [(job.id, message.id) for job, message in claimed] == [
        (receipt.job_ids[0], receipt.message_id) for receipt in receipts
    ]
    assert (ran, read_apart) == (["claim_level"], [])
    [full, plain] = [message for _job, message in claimed]
    assert (full.payload, full.headers, full.key) == (b'{"a": 1}', {"b": "c"}, "k")
    assert (full.client_message_id, full.content_type) == ("m", "application/json")
    assert {full.id: full, plain.id: plain} == messages.read_messages(USING, [full.id, plain.id])


def test_a_large_claim_does_not(puller: Puller, read_apart: list[Sequence[int]]) -> None:
    """A large claim reads its messages in a second statement, which is faster for many."""
    published(puller.consumer, FEW + 1)
    assert len(puller.claim(100).jobs) == FEW + 1
    assert [len(ids) for ids in read_apart] == [FEW + 1]


def test_messages_of_another_time_are_read_after_the_claim(
    puller: Puller, read_apart: list[Sequence[int]]
) -> None:
    """A message that is far older than its job is read after the claim, in another statement."""
    old = first_of(now() - timedelta(days=2))
    query(
        "INSERT INTO pulljobs_message"
        " (id, channel_id, published_at, priority, content_type, headers, payload)"
        " VALUES (%s, %s, now(), 0, '', '{}', 'old')",
        [old, puller.consumer.channel_id],
    )
    published(puller.consumer, 1)
    query(
        "INSERT INTO pulljobs_job"
        " (consumer_id, message_id, available_at, state, retry_count, deliveries, priority)"
        " VALUES (%s, %s, clock_timestamp(), 'QUEUED', 0, 0, 0)",
        [puller.consumer.pk, old],
    )
    [_recent, message] = [message for _job, message in puller.claim(5).jobs]
    assert (message.id, message.payload) == (old, b"old")
    assert read_apart == [[old]]


@pytest.mark.parametrize("priority", [-1, 1])
def test_other_priorities_are_seen(puller: Puller, ran: list[str], priority: int) -> None:
    [other] = published(puller.consumer, priority=priority)
    made = published(puller.consumer, 2)
    assert ids(puller) == ([other, *made] if priority > 0 else [*made, other])
    assert ran == ["claim_level", "claim"]


def _pause(consumer: Consumer) -> None:
    consumer.paused_until = now() + timedelta(hours=1)


def _pause_channel(consumer: Consumer) -> None:
    consumer.channel.paused_until = now() + timedelta(hours=1)
    consumer.channel.save()


def _delete(consumer: Consumer) -> None:
    consumer.deleted_at = now()


def _bound(consumer: Consumer) -> None:
    consumer.max_in_flight = 1


def _limit(consumer: Consumer) -> None:
    consumer.rate, consumer.rate_burst = "60/h", 2


@pytest.mark.parametrize(
    ("change", "refusal", "gets"),
    [
        (_pause, Refusal.PAUSED, 0),
        (_pause_channel, Refusal.PAUSED, 0),
        (_delete, Refusal.DELETED, 0),
        (_bound, Refusal.MAX_IN_FLIGHT, 1),
        (_limit, Refusal.RATE_LIMITED, 2),
    ],
)
def test_what_stops_a_claim_is_minded(
    puller: Puller, change: Callable[[Consumer], None], refusal: Refusal, gets: int
) -> None:
    query("DELETE FROM pulljobs_job")
    published(puller.consumer, 3)
    change(puller.consumer)
    puller.consumer.save()
    claim = puller.claim(3)
    assert (len(claim.jobs), claim.refusal) == (gets, refusal)


def test_it_tells_what_is_due_next(puller: Puller) -> None:
    published(puller.consumer, delay=timedelta(hours=1))
    due = puller.claim(5).next_due
    assert due is not None
    assert timedelta(minutes=59) < due <= timedelta(hours=1)


@pytest.fixture
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep full claims from looking for jobs that they skipped, however slow the machine is."""
    monkeypatch.setattr(low_water_marks, "PATIENCE", timedelta(hours=1))


@pytest.mark.usefixtures("_slow_machine")
def test_what_large_full_claims_passed_is_found_once_one_is_not_full() -> None:
    puller, passed = _passing(full=3, left=0)
    assert ids(puller, LARGE) == []
    assert puller._claimer.marks.below is not None
    claim = puller.claim(LARGE)
    assert [job.id for job, _message in claim.jobs] == [passed]
    assert claim.more, "for what came meanwhile is above"


def test_what_large_full_claims_passed_is_found_while_they_go_on() -> None:
    puller, passed = _passing(full=3, left=4 * LARGE)
    assert passed not in ids(puller, LARGE)
    query("SELECT pg_sleep(1.1)")
    assert passed not in ids(puller, LARGE)
    assert ids(puller, LARGE)[0] == passed


@pytest.mark.usefixtures("_slow_machine")
def test_a_skipped_job_that_a_search_below_the_mark_finds_locked_is_claimed_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A skipped job is claimed, even if it was still locked when a claim looked for it."""
    puller, passed = _passing(full=3, left=0)
    with session() as other:
        lock(other, passed)
        assert ids(puller, LARGE) == []
        assert puller._claimer.marks.below is not None
        wait_until(lambda: not puller.claim(LARGE).more)
    monkeypatch.setattr(low_water_marks, "PATIENCE", timedelta())
    wait_until(lambda: ids(puller, LARGE) == [passed])


def _passing(*, full: int, left: int) -> tuple[Puller, int]:
    """Return a `Puller` whose `full` claims skipped a locked job, and the id of that job.

    `left` jobs remain in the queue. The jobs are older than any claim, so no open transaction keeps
    the low-water mark below them, except for those of other tests for a while. One publish wrote
    them, so all became available at the same time, where the search for skipped jobs ends.
    """
    puller = Puller(USING, ConsumerFactory.create())
    made = published(puller.consumer, BATCH)
    while mark_of(puller) == low_water_marks.BEGINNING:
        assert ids(puller, 1) == made[:1]
        made = made[1:]
        query("SELECT pg_sleep(0.05)")
    ids(puller, len(made) - full * LARGE - left - 1)
    passed, *rest = made[-full * LARGE - left - 1 :]
    with session() as other:
        lock(other, passed)
        for claim in range(full):
            assert ids(puller, LARGE) == rest[claim * LARGE : (claim + 1) * LARGE]
    return puller, passed
