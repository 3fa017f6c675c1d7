"""An error after a commit does not make it look failed, and verbs join transactions of any kind."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connections, transaction
from psycopg import errors

from pulljobs import batches, emission, operating, pulling, schedules
from pulljobs.engine import full_queue, telemetry
from pulljobs.engine.outcomes import all_held, deliver, retry
from pulljobs.engine.telemetry import JobsExpired
from pulljobs.models import Job
from pulljobs.publishing import publish
from pulljobs.schedules.models import Schedule
from pulljobs.states import State
from pulljobs.storage import (
    jobs,
    limits,
    listen,
    sessions,
    settling,
    statements,
    transactions,
)
from pulljobs.storage.rows import Finished
from pulljobs.workflows import signal
from pulljobs.workflows.models import RunSignal
from tests.factories import USING, ConsumerFactory, published
from tests.sessions import query

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.own_session]

WORKS: dict[str, Callable[[], object]] = {
    "members of a group": lambda: limits.with_members(USING, {1}, {1}),
    "names for events": lambda: emission.emit_given_back(USING, Finished({1: State.DEAD}, [], {})),
    "wake-up": lambda: listen.wake_on_commit(USING, [1]),
    "lost jobs": lambda: listen.notify_lost_on_commit(USING, [1]),
}


@pytest.fixture
def events() -> Iterator[list[object]]:
    seen: list[object] = []
    end = telemetry.record_with(seen.append)
    yield seen
    end()


@pytest.mark.parametrize("name", WORKS)
def test_a_connection_that_is_cut_after_a_commit_fails_nothing(
    name: str, events: list[object], caplog: pytest.LogCaptureFixture
) -> None:
    """An error after a commit raises nothing. The log names it in one line, without a traceback."""
    connections[USING].ensure_connection()
    connections[USING].connection.close()
    WORKS[name]()
    connections[USING].close()
    assert events == ([JobsExpired("", "", {"DEAD": 1})] if name == "names for events" else [])
    assert {record.getMessage()[:15] for record in caplog.records} == {"After a commit,"}
    assert not any(record.exc_info for record in caplog.records)


FULL: list[tuple[Exception, str]] = [
    (errors.ProgramLimitExceeded("too many notifications"), "queue of notifications is full"),
    (errors.DiskFull("could not access status of transaction 0"), "because its disk is full"),
]


@pytest.mark.parametrize(("cause", "text"), FULL)
def test_a_full_queue_or_disk_for_notifications_fails_no_publish_and_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, cause: Exception, text: str
) -> None:
    """A wake-up that the server refuses, as it has no room for it, costs one line of the log."""

    def refuse(*args: Any, **more: Any) -> None:
        raise OperationalError(str(cause)) from cause

    monkeypatch.setattr(listen, "run", refuse)
    monkeypatch.setattr(full_queue._warning, "_logged_at", float("-inf"))
    consumer = ConsumerFactory.create()
    for _publish in range(2):
        with transaction.atomic(using=USING):
            publish(consumer.channel.name, b"")
    assert Job.objects.count() == 2
    [record] = caplog.records
    assert text in record.getMessage()
    assert record.exc_info is None


def test_outcomes_that_a_cut_connection_hides_are_to_be_written_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An outcome is reported as unwritten if the connection breaks before its write is confirmed.

    The other outcomes of the batch are reported as written, because a repeated retry would be lost.
    """
    consumer = ConsumerFactory.create()
    published(consumer), published(consumer)
    claim = pulling.Puller(USING, consumer).claim(2)
    assert claim.taken is not None
    first, second = all_held(claim.taken.lease_token, [job.id for job, _message in claim.jobs])
    pulling.finish([deliver(first)])
    run = statements.run

    def cut(using: str, name: str, *args: Any, **more: Any) -> Any:
        if name == "settled":
            connections[USING].connection.close()
        return run(using, name, *args, **more)

    monkeypatch.setattr(settling, "run", cut)
    finished = jobs.finish(USING, [deliver(first), retry(second, "late")])
    assert (finished.states, finished.lost) == ({second.job_id: State.QUEUED}, [])
    assert finished.locked == {first.job_id}
    connections[USING].close()


def test_what_fails_before_the_commit_is_raised() -> None:
    def look() -> None:
        with transaction.atomic(USING):
            connections[USING].connection.close()
            limits.with_members(USING, {1}, {1})

    with pytest.raises(OperationalError):
        look()
    connections[USING].close()


@pytest.fixture
def by_hand() -> Iterator[None]:
    """Switch autocommit off, so that the test ends its transaction by hand."""
    transaction.set_autocommit(False, USING)
    yield
    transaction.rollback(USING)
    transaction.set_autocommit(True, USING)


def test_a_connection_is_in_a_transaction_before_it_opens_where_commits_are_made_by_hand(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connections[USING].close()
    assert not sessions.in_transaction(USING)
    monkeypatch.setitem(connections[USING].settings_dict, "AUTOCOMMIT", False)
    assert sessions.in_transaction(USING)


def test_verbs_join_a_transaction_that_is_ended_by_hand(by_hand: None) -> None:
    """Verbs join a transaction that the caller commits by hand, with autocommit off."""
    consumer = ConsumerFactory.create()
    with batches.batch("nightly") as batch:
        [member] = batch.publish(consumer.channel.name, b"x").job_ids
    [run_id] = published(consumer)
    signal(run_id, "approval")
    batches.extend(batch.id).publish(consumer.channel.name, b"y")
    operating.kill([member], by="olga")
    schedules.create("hourly", consumer.channel.name, every=timedelta(hours=1))
    schedules.pause("hourly")
    schedules.fire_now("hourly")
    transaction.commit(USING)
    assert Job.objects.get(id=member).state == State.DEAD
    assert (RunSignal.objects.count(), Schedule.objects.count()) == (1, 1)


def test_a_transaction_that_is_ended_by_hand_keeps_its_settings(by_hand: None) -> None:
    """Verbs change no time limit of a transaction that the caller ends by hand."""
    settings = "SELECT current_setting(name) FROM unnest(%s::text[]) AS name"
    names = ["lock_timeout", "idle_in_transaction_session_timeout"]
    before = query(settings, [names])
    publish(ConsumerFactory.create().channel.name, b"x")
    with transactions.brief(USING, lock_seconds=1):
        assert sessions.in_transaction(USING)
    assert query(settings, [names]) == before
