"""`pulljobs verify`: an invariant that is broken by hand is named, and no other is."""

import json
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.db import DatabaseError, transaction
from django.utils import timezone

from pulljobs.engine import outcomes
from pulljobs.models import ArchivedJob, Consumer, Job, Lease
from pulljobs.publishing import publish
from pulljobs.states import State
from pulljobs.storage import invariants, jobs
from pulljobs.storage.invariants import INVARIANTS, CheckLimits
from tests.factories import USING, ConsumerFactory, JobFactory, MadeJob, claimed, published
from tests.keyed import claim, deliver, exclusive, queued
from tests.sessions import query
from tests.turns import fair, limited, queue, rated

pytestmark = pytest.mark.django_db
NOW = timedelta(0)
LONG_AGO = timedelta(hours=2)
LIMITS = CheckLimits(
    rows=None, page_timeout=timedelta(seconds=20), overdue=timedelta(minutes=1), retention=None
)

Breaks = Callable[[], set[int]]


def broken(**changed: Any) -> dict[str, set[int]]:
    return invariants.check(USING, LIMITS._replace(**changed), NOW).broken


def made(state: State = State.QUEUED) -> MadeJob:
    return JobFactory.create(state=state)


def without_constraint(name: str, table: str = "pulljobs_job") -> None:
    query(f"ALTER TABLE {table} DROP CONSTRAINT {name}")


def illegal_state() -> set[int]:
    without_constraint("pulljobs_job_state")
    job = made()
    query("UPDATE pulljobs_job SET state = 'LOST' WHERE id = %s", [job.id])
    return {job.id}


def negative_count() -> set[int]:
    without_constraint("pulljobs_job_state")
    job = made()
    query("UPDATE pulljobs_job SET retry_count = -1 WHERE id = %s", [job.id])
    return {job.id}


def lease_is_gone() -> set[int]:
    job = made(State.INFLIGHT)
    query("DELETE FROM pulljobs_lease")
    return {job.id}


def lease_forgot_the_job() -> set[int]:
    job = made(State.INFLIGHT)
    query("UPDATE pulljobs_lease SET job_ids = '{}'")
    return {job.id}


def lease_of_another_consumer() -> set[int]:
    job = made(State.INFLIGHT)
    query("UPDATE pulljobs_lease SET consumer_id = %s", [ConsumerFactory.create().pk])
    return {job.id}


def two_leases() -> set[int]:
    job = made(State.INFLIGHT)
    lease = Lease.objects.get()
    lease.pk = None
    lease.save(force_insert=True)
    return {job.id}


def message_is_gone() -> set[int]:
    job = made()
    query("DELETE FROM pulljobs_message")
    return {job.id}


def consumer_is_gone() -> set[int]:
    job = made()
    query("DELETE FROM pulljobs_consumer")
    return {job.id}


def delivered_and_alive() -> set[int]:
    job, other = made(State.DELIVERED), made()
    query("UPDATE pulljobs_archived_job SET job_id = %s WHERE job_id = %s", [other.id, job.id])
    return {other.id}


def death_is_forgotten() -> set[int]:
    job = made(State.DEAD)
    query("DELETE FROM pulljobs_archived_job")
    return {job.id}


def two_of_a_key() -> set[int]:
    consumer = exclusive()
    both = queued(consumer, "aa")
    claim(consumer, 1)
    query(
        "UPDATE pulljobs_job SET state = 'INFLIGHT', lease_token = pulljobs_lease.lease_token,"
        " available_at = now() FROM pulljobs_lease WHERE state = 'QUEUED'"
    )
    query("UPDATE pulljobs_lease SET job_ids = %s", [both])
    return set(both)


def blocked_for_nothing() -> set[int]:
    consumer = ConsumerFactory.create(exclusive_keys=True)
    [job] = published(consumer, key="a")
    query("UPDATE pulljobs_job SET available_at = NULL")
    return {job}


def overtaken() -> set[int]:
    consumer = ConsumerFactory.create()
    _claimed, passed_by = published(consumer, 2)
    claimed(consumer, 1)
    query(
        "UPDATE pulljobs_job SET available_at = available_at - %s WHERE id = %s",
        [LONG_AGO, passed_by],
    )
    return {passed_by}


def without_slot() -> set[int]:
    consumer = limited(1)
    queue(consumer, 1, "a")
    [job] = claim(consumer)
    query("UPDATE pulljobs_flow_key SET holders = '{}'")
    return {job.job_id}


def without_turn() -> set[int]:
    consumer = fair()
    _claimed, forgotten = queue(consumer, 2, "a")
    claim(consumer, 1)
    query("DELETE FROM pulljobs_flow_key")
    query("UPDATE pulljobs_job SET available_at = available_at - %s", [LONG_AGO])
    return {forgotten}


def above_slots() -> set[int]:
    consumer = limited(2)
    _first, second = queue(consumer, 2, "a")
    deliver(*claim(consumer))
    Consumer.objects.filter(pk=consumer.pk).update(max_in_flight_per_key=1)
    query("UPDATE pulljobs_consumer SET changed_at = now() - interval '1 hour'")
    return {second}


def above_rate() -> set[int]:
    consumer = rated("1/h", rate_burst=2)
    for key in "ab":
        _first, second = queue(consumer, 2, key)
    deliver(*claim(consumer))
    Consumer.objects.filter(pk=consumer.pk).update(rate_per_key=False, rate_per_second=2 / 3_600)
    query("UPDATE pulljobs_consumer SET rate_burst = 3, changed_at = now() - interval '1 hour'")
    return {second}


def lease_without_end() -> set[int]:
    made(State.INFLIGHT)
    query("UPDATE pulljobs_lease SET leased_until = hard_end + interval '1s'")
    return {Lease.objects.get().pk}


def unreaped_lease() -> set[int]:
    made(State.INFLIGHT)
    query(
        "UPDATE pulljobs_lease SET leased_until = leased_until - %s, claimed_at = claimed_at - %s",
        [LONG_AGO, LONG_AGO],
    )
    return {Lease.objects.get().pk}


def lease_names_no_job() -> set[int]:
    made(State.INFLIGHT)
    query("UPDATE pulljobs_lease SET job_ids = job_ids || 1::bigint")
    return {Lease.objects.get().pk}


def illegal_settlement() -> set[int]:
    without_constraint("pulljobs_archived_state", "pulljobs_archived_job")
    job = made(State.DELIVERED)
    query("UPDATE pulljobs_archived_job SET state = 'QUEUED'")
    return {job.id}


def settled_twice() -> set[int]:
    job = made(State.DEAD)
    _archive_again()
    return {job.id}


def delivered_twice() -> set[int]:
    job = made(State.DELIVERED)
    _archive_again()
    query("UPDATE pulljobs_archived_job SET lease_token = gen_random_uuid()")
    return {job.id}


def _archive_again() -> None:
    row = ArchivedJob.objects.get()
    columns = ", ".join(str(f.column) for f in row._meta.fields if f.column != "id")
    query(
        f"INSERT INTO pulljobs_archived_job ({columns}) SELECT {columns} FROM pulljobs_archived_job"
    )


def consumer_was_forgotten() -> set[int]:
    job = made()
    message = Job.objects.get(pk=job.id).message_id
    query("DELETE FROM pulljobs_job")
    Consumer.objects.update(
        created_at=job.consumer.created_at - LONG_AGO, changed_at=job.consumer.created_at - LONG_AGO
    )
    return {message}


@pytest.mark.parametrize(
    ("promise", "breaks"),
    [
        ("job_is_legal", illegal_state),
        ("job_is_legal", negative_count),
        ("in_flight_is_leased", lease_is_gone),
        ("in_flight_is_leased", lease_forgot_the_job),
        ("in_flight_is_leased", lease_of_another_consumer),
        ("leased_once", two_leases),
        ("job_has_its_message", message_is_gone),
        ("job_has_its_consumer", consumer_is_gone),
        ("delivered_is_gone", delivered_and_alive),
        ("dead_is_remembered", death_is_forgotten),
        ("one_in_flight_a_key", two_of_a_key),
        ("blocked_behind_a_job", blocked_for_nothing),
        ("claimed_in_turn", overtaken),
        ("slots_of_a_key", without_slot),
        ("waiting_key_has_a_turn", without_turn),
        ("slots_at_every_instant", above_slots),
        ("claims_keep_the_rate", above_rate),
        ("lease_ends", lease_without_end),
        ("ended_lease_is_reaped", unreaped_lease),
        ("leased_job_is_known", lease_names_no_job),
        ("settlement_is_legal", illegal_settlement),
        ("claim_settles_once", settled_twice),
        ("delivered_once", delivered_twice),
        ("consumer_has_its_job", consumer_was_forgotten),
    ],
)
def test_what_is_broken_is_named_and_nothing_else(promise: str, breaks: Breaks) -> None:
    concerned = breaks()
    assert broken() == {promise: concerned}


def test_every_promise_is_broken_here() -> None:
    [breaks] = test_what_is_broken_is_named_and_nothing_else.pytestmark  # type: ignore[attr-defined]  # pytest's mark
    assert {promise for promise, _break in breaks.args[1]} == set(INVARIANTS)


def test_sound_tables_keep_every_promise() -> None:
    """`verify` finds nothing wrong in jobs of every state, with and without keys and delays."""
    for state in State:
        made(state)
    running, waiting = exclusive(), exclusive(retry_strategy="constant:60")
    queued(running, "aaab")
    claim(running, 4)
    queued(waiting, "aa")
    jobs.finish(USING, [outcomes.retry(held, "again") for held in claim(waiting, 1)])
    delayed = ConsumerFactory.create()
    published(delayed, delay=timedelta(hours=3))
    result = invariants.check_once(USING, LIMITS)
    assert result.broken == {}
    assert result.looked_at == {"jobs": 10, "leases": 2, "archive": 2, "messages": 11}


def test_what_passes_by_itself_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    blocked_for_nothing()

    def sleep(seconds: float) -> None:
        query("UPDATE pulljobs_job SET available_at = clock_timestamp()")

    monkeypatch.setattr(invariants, "time", SimpleNamespace(sleep=sleep))
    assert invariants.check_once(USING, LIMITS).broken.keys() == {"blocked_behind_a_job"}
    assert broken() == {}


def test_an_ended_lease_that_holds_no_job_needs_no_reaper() -> None:
    unreaped_lease()
    query(
        "UPDATE pulljobs_job"
        " SET state = 'QUEUED', lease_token = NULL, available_at = clock_timestamp()"
    )
    assert Lease.objects.exists()
    assert broken() == {}


def test_history_that_may_be_dropped_is_not_missed() -> None:
    death_is_forgotten()
    assert broken(retention=timedelta(days=1))
    assert broken(retention=timedelta(0)) == {}


@pytest.mark.parametrize(
    "changed",
    [{"deleted_at": timezone.now()}, {"key_overflow": "replace", "max_queued_per_key": 1}],
)
def test_consumer_that_need_not_have_a_job(changed: dict[str, Any]) -> None:
    consumer = ConsumerFactory.create(**changed)
    publish(consumer.channel.name, b"", key="a")
    query("DELETE FROM pulljobs_job")
    Consumer.objects.update(changed_at=consumer.created_at - LONG_AGO)
    query("UPDATE pulljobs_message SET published_at = published_at + interval '2 hours'")
    assert broken() == {}


def test_pages_join(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check covers the same rows whatever the size of its pages, and stops at `limits.rows`."""
    monkeypatch.setattr(invariants, "PAGE", 2)
    consumer = ConsumerFactory.create()
    every = published(consumer, 5)
    query("DELETE FROM pulljobs_message")
    assert broken() == {"job_has_its_message": set(every)}
    result = invariants.check_once(USING, LIMITS._replace(rows=4))
    assert result.looked_at["jobs"] == 4
    assert result.unseen == ["jobs"]
    assert result.broken == {"job_has_its_message": set(every[:4])}


def test_it_can_write_nothing() -> None:
    def write() -> None:
        with transaction.atomic(USING):
            invariants.read_only(USING, timedelta(seconds=5))
            query("DELETE FROM pulljobs_job")

    with pytest.raises(DatabaseError, match="read-only"):
        write()


def test_command_names_what_is_broken(capsys: pytest.CaptureFixture[str]) -> None:
    [job] = message_is_gone()
    with pytest.raises(SystemExit) as ended:
        call_command("pulljobs", "--json", "verify")
    assert ended.value.code == 1
    report = json.loads(capsys.readouterr().out)
    assert not report["ok"]
    assert report["broken"]["job_has_its_message"]["count"] == 1
    assert report["broken"]["job_has_its_message"]["ids"] == [job]


def test_command_ends_well(capsys: pytest.CaptureFixture[str]) -> None:
    """`pulljobs verify` exits without an error and says so if every invariant holds."""
    made()
    call_command("pulljobs", "verify")
    assert capsys.readouterr().out.endswith("Every invariant holds.\n")


@pytest.mark.parametrize("timeout", ["0.001", "0.0004", "0"])
def test_command_says_where_a_page_took_too_long(timeout: str) -> None:
    published(ConsumerFactory.create(), 1000)
    with pytest.raises(CommandError, match="--timeout"):
        call_command("pulljobs", "verify", "--timeout", timeout)


def test_a_page_may_take_longer_than_the_database_can_wait() -> None:
    made()
    call_command("pulljobs", "verify", "--timeout", "30d", stdout=StringIO())
