"""`pulljobs doctor` reports problems of the core, and nothing where all is well."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError, transaction
from django.db.models.functions import Now
from django.test import override_settings
from psycopg.errors import QueryCanceled, SerializationFailure

from pulljobs import operating
from pulljobs.diagnosis import doctor
from pulljobs.diagnosis.database_checks import Finding, run_check
from pulljobs.models import Consumer, Job, Lease, LimitGroup, Node
from pulljobs.pulling import Puller
from pulljobs.storage import nodes, schema, throttles, turns
from tests.circuits import CAUSE, open_circuit
from tests.diagnosis.commands import answer, text
from tests.factories import USING, ConsumerFactory, JobFactory, claimed, published
from tests.sessions import FORGET, Thread, pass_time, query, session, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]
HOUR = timedelta(hours=1)


def findings(*arguments: str) -> dict[str, dict[str, Any]]:
    """Run the doctor. Return its findings by code."""
    content, code = answer("doctor", *arguments)
    assert code == int(any(finding["is_error"] for finding in content["findings"]))
    return {finding["code"]: finding for finding in content["findings"]}


@pytest.fixture(autouse=True)
def _partitions() -> None:
    """Create the partitions of the next days, as a worker does in production."""
    answer("maintain")


def test_a_new_installation_has_no_findings() -> None:
    assert findings() == {}
    assert text("doctor") == "Nothing blocks.\n"


def test_an_old_snapshot_is_reported_with_its_pid_and_the_start_of_its_query() -> None:
    with session() as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        [pid] = other.execute("SELECT pg_backend_pid()").fetchone() or [0]
        other.execute("SELECT 'about the customers' FROM pulljobs_job -- " + "x" * 200)
        assert "old_snapshot" not in findings("--snapshot-age", "60")
        content, code = answer("doctor", "--snapshot-age", "0")
    # Autovacuum may have an old snapshot as well.
    [finding] = [finding for finding in content["findings"] if f" {pid} " in finding["text"]]
    assert (finding["code"], finding["is_error"], code) == ("old_snapshot", True, 1)
    assert "about the customers" in finding["text"]
    assert "x" * 100 not in finding["text"]


def test_a_vacuum_is_not_reported_as_an_old_snapshot() -> None:
    with session() as other:
        other.autocommit = True
        other.execute("CREATE TEMP TABLE slowly AS SELECT generate_series(1, 20000)")
        other.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")
        vacuum = Thread(lambda: other.execute("VACUUM slowly"))
        pid = other.info.backend_pid
        seen = (
            "SELECT pid FROM pg_stat_activity JOIN pg_stat_progress_vacuum USING (pid)"
            " WHERE pid = %s AND backend_xmin IS NOT NULL"
        )
        wait_until(lambda: bool(query(seen, [pid])))
        content, _code = answer("doctor", "--snapshot-age", "0")
        assert query(seen, [pid])
        other.cancel()
        with pytest.raises(QueryCanceled):
            vacuum.result()
    assert not [finding for finding in content["findings"] if f" {pid} " in finding["text"]]


@pytest.mark.parametrize("paused", ["consumer", "channel"])
def test_a_pause_is_reported_and_is_no_error(paused: str) -> None:
    """Doctor reports the pause of a consumer or its channel, and then no missing worker."""
    consumer = ConsumerFactory.create()
    row: Any = consumer if paused == "consumer" else consumer.channel
    row.paused_until = Now() + HOUR
    row.save()
    published(consumer)
    by_code = findings()
    assert "no_worker" not in by_code
    assert not by_code["paused"]["is_error"]
    assert f"{consumer.channel.name}/{consumer.name}" in by_code["paused"]["text"]


def test_a_throttle_is_reported_and_is_no_error() -> None:
    consumer = ConsumerFactory.create()
    assert "throttled" not in findings()
    throttles.throttle(USING, {consumer.pk: 60.0})
    finding = findings()["throttled"]
    assert not finding["is_error"]
    assert f"{consumer.channel.name}/{consumer.name} is throttled until" in finding["text"]


def test_keys_that_are_throttled_or_held_for_long_are_reported() -> None:
    consumer = ConsumerFactory.create(max_in_flight_per_key=1)
    published(consumer, 2, key="customer-7")
    claimed_by_key = Puller(USING, consumer).claim(5)
    turns.throttle(USING, {(consumer.pk, "customer-8"): 60.0})
    named = findings()
    assert not named["throttled_keys"]["is_error"]
    assert "the last until" in named["throttled_keys"]["text"]
    assert ": customer-8. `pulljobs resume`" in named["throttled_keys"]["text"]
    assert "keys_without_slots" not in named
    assert len(claimed_by_key.jobs) == 1
    query("UPDATE pulljobs_lease SET claimed_at = claimed_at - interval '1 hour'")
    assert "others wait for: customer-7." in findings()["keys_without_slots"]["text"]


def test_the_throttle_of_jobs_without_a_key_is_named() -> None:
    consumer = ConsumerFactory.create(fair_by_key=True)
    turns.throttle(USING, {(consumer.pk, ""): 60.0})
    assert ": that of jobs without a key. " in findings()["throttled_keys"]["text"]


def test_full_keys_are_named() -> None:
    consumer = ConsumerFactory.create(max_queued_per_key=1, key_overflow="drop_oldest")
    published(consumer, key="customer-7")
    text = findings()["full_keys"]["text"]
    assert "has full keys of 1 or more jobs, whose next message is subject to key_overflow=" in text
    assert "key_overflow=drop_oldest: customer-7." in text


def test_a_rate_at_which_the_ready_jobs_take_hours_is_reported_and_is_no_error() -> None:
    consumer = ConsumerFactory.create(rate="1/h")
    published(consumer)
    assert "rate_limited" not in findings()
    published(consumer, 2)
    finding = findings()["rate_limited"]
    assert not finding["is_error"]
    assert "has 3 ready jobs, which take 3.0 hours at its rate of 1/h" in finding["text"]


def test_a_backlog_that_is_too_long_to_count_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    """The doctor estimates a backlog that is too long to count, and reports the hours it takes."""
    published(ConsumerFactory.create(rate="1/s"), 2)
    monkeypatch.setattr("pulljobs.diagnosis.doctor.MOST_READY", 2)
    monkeypatch.setattr("pulljobs.storage.backlog.estimate_queued", lambda using, id: 36_000)
    text = findings()["rate_limited"]["text"]
    assert "has about 36,000 ready jobs, which take 10.0 hours at its rate of 1/s" in text


def test_an_estimate_of_mostly_delayed_jobs_is_not_reported_as_ready(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    consumer = ConsumerFactory.create(rate="1/h")
    published(consumer, 2)
    published(consumer, 2, delay=timedelta(days=1))
    monkeypatch.setattr("pulljobs.diagnosis.doctor.MOST_READY", 2)
    monkeypatch.setattr("pulljobs.storage.backlog.estimate_queued", lambda using, id: 36_000)
    assert "has at least 2 ready jobs, which take 2.0 hours" in findings()["rate_limited"]["text"]


def test_a_group_whose_members_have_hours_of_work_together_is_reported() -> None:
    group = LimitGroup.objects.create(name="stripe-api", rate="1/h")
    for _member in range(2):
        published(ConsumerFactory.create(limit_group=group))
    text = findings()["rate_limited"]["text"]
    assert "Limit group stripe-api has 2 ready jobs, which take 2.0 hours" in text


def test_full_keys_are_searched_in_a_limited_number_of_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The doctor reads a limited number of jobs in the order of keys, and says so.

    Jobs in flight count only where `key_limit_counts` is "live".
    """
    consumer = ConsumerFactory.create(max_queued_per_key=2)
    for key in ("a", "b", "b", "c", "c"):
        published(consumer, key=key)
    assert findings()["full_keys"]["text"].endswith("reject: b, c.")
    monkeypatch.setattr("pulljobs.diagnosis.doctor.LOOKED_AT", 3)
    text = findings()["full_keys"]["text"]
    assert text.endswith("reject: b. Only the first 3 of its jobs by key were read.")
    monkeypatch.setattr("pulljobs.diagnosis.doctor.LOOKED_AT", 2)
    assert "may have full keys. Only the first 2" in findings()["full_keys"]["text"]
    monkeypatch.setattr("pulljobs.diagnosis.doctor.LOOKED_AT", 3)
    assert len(claimed(consumer, 2)) == 2
    assert "reject: c." in findings()["full_keys"]["text"]
    Consumer.objects.update(key_limit_counts="live")
    assert "reject: b." in findings()["full_keys"]["text"]


def test_rows_in_a_default_partition_and_missing_days_are_errors() -> None:
    consumer = ConsumerFactory.create()
    for [name] in query(
        "SELECT relname FROM pg_class WHERE relname ~ '^pulljobs_message_[0-9]{8}$'"
    ):
        query(f"DROP TABLE {name}")
    published(consumer)
    by_code = findings()
    assert "pulljobs_message_default holds 1 rows" in by_code["default_partition"]["text"]
    assert by_code["missing_partition"]["is_error"]
    answer("maintain")
    assert not {"default_partition", "missing_partition"} & set(findings())


def test_tables_of_another_owner_are_reported() -> None:
    query("CREATE ROLE pulljobs_app_of_test")
    try:
        query("GRANT ALL ON ALL TABLES IN SCHEMA public TO pulljobs_app_of_test")
        query("SET ROLE pulljobs_app_of_test")
        assert "pulljobs_archived_job" in findings()["not_owner"]["text"]
    finally:
        query("RESET ROLE")
        query("DROP OWNED BY pulljobs_app_of_test")
        query("DROP ROLE pulljobs_app_of_test")


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
def test_an_isolation_level_of_the_role_at_which_locks_fail_is_reported(level: str) -> None:
    try:
        query("SET default_transaction_isolation = 'read uncommitted'")
        assert "wrong_isolation" not in findings(), "it is READ COMMITTED in PostgreSQL"
        query(f"SET default_transaction_isolation = '{level}'")
        finding = findings()["wrong_isolation"]
    finally:
        query("RESET default_transaction_isolation")
    assert f"the isolation level {level}:" in finding["text"]
    assert finding["is_error"]


def lose_conflict() -> None:
    cause = SerializationFailure("could not serialize access due to concurrent update")
    raise OperationalError(str(cause)) from cause


def test_a_check_that_loses_a_conflict_is_repeated() -> None:
    tries = list[int]()

    def check() -> Iterator[Finding]:
        tries.append(1)
        if len(tries) < 3:
            lose_conflict()
        yield Finding("lost", False, "twice")

    assert run_check(check) == [("lost", False, "twice")]


def test_the_error_of_a_wrong_isolation_level_says_what_to_do() -> None:
    with pytest.raises(OperationalError) as caught:
        lose_conflict()
    assert schema.advice(caught.value) == (
        "The isolation level is not READ COMMITTED (could not serialize access due to concurrent "
        "update): set default_transaction_isolation to 'read committed' for the role"
    )


def register(**fields: Any) -> Node:
    """Register a node with these fields."""
    node_id = uuid4()
    nodes.register(USING, node_id, "host:1")
    Node.objects.filter(pk=node_id).update(**fields)
    return Node.objects.get(pk=node_id)


def test_a_consumer_without_a_worker_is_an_error_while_it_has_jobs() -> None:
    consumer: Consumer = ConsumerFactory.create()
    assert "no_worker" not in findings()
    published(consumer)
    assert findings()["no_worker"]["is_error"]
    place = f"{consumer.channel.name}/{consumer.name}"
    register(report={"serves": [place]}, heartbeat_at=Now() - HOUR, stopped_at=Now())
    assert "no_worker" in findings()
    register(report={"serves": [place]})
    assert "no_worker" not in findings()


def test_a_push_consumer_without_a_worker_is_not_advised_to_pull() -> None:
    """For a push consumer doctor advises a worker without --no-push, and no pull over HTTP."""
    consumer = ConsumerFactory.create(type="push", callback_url="https://shop.example/hook")
    published(consumer)
    text = findings()["no_worker"]["text"]
    assert "without --no-push" in text
    assert "pull over HTTP" not in text


def test_jobs_due_later_need_no_worker_and_cost_no_reads() -> None:
    """The query for consumers without a worker reads hardly more blocks for 30,000 delayed jobs."""
    query(FORGET.replace("%", "%%"))
    consumer = ConsumerFactory.create()
    reads = []
    for numbers in (range(1, 31), range(31, 30_001)):
        query(DUE_LATER, [consumer.pk, numbers.start, numbers.stop - 1])
        query("ANALYZE pulljobs_job")
        with transaction.atomic(using=USING):
            before = blocks_read()
            assert list(doctor.unserved_consumers()) == []
            reads.append(blocks_read() - before)
    few, many = reads
    assert many < few + 50


DUE_LATER = """
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, available_at, retry_count, deliveries, priority, state)
SELECT n, %s, n, now() + interval '1 day', 0, 0, n %% 3, 'QUEUED'
FROM generate_series(%s::int, %s::int) AS n
"""


def blocks_read() -> int:
    """Return the blocks of the job table and its indexes that this transaction has read."""
    [(blocks,)] = query(
        "SELECT sum(pg_stat_get_xact_blocks_fetched(oid))::int FROM pg_class"
        " WHERE relname ~ '^pulljobs_job(_|$)'"
    )
    return int(blocks)


def test_jobs_that_wait_for_a_deleted_consumer_are_an_error() -> None:
    """Only queued jobs are reported: those in flight still end, and dead jobs have ended."""
    consumer: Consumer = ConsumerFactory.create()
    dead, _held, waiting = (published(consumer)[0] for _ in range(3))
    operating.kill([dead], by="a test")
    claimed(consumer)
    assert "deleted_consumer" not in findings()
    Consumer.objects.update(deleted_at=Now())
    finding = findings()["deleted_consumer"]
    assert finding["is_error"]
    place = f"{consumer.channel.name}/{consumer.name}"
    assert finding["text"].startswith(f"{place} is deleted and 1 of its jobs can never run")
    operating.kill([waiting], by="a test")
    assert "deleted_consumer" not in findings()


def test_dead_jobs_of_a_deleted_consumer_are_reported() -> None:
    """Doctor reports dead jobs of a deleted consumer, which keep partitions of their messages."""
    consumer: Consumer = ConsumerFactory.create()
    operating.kill(published(consumer), by="a test")
    assert "deleted_consumer_dead" not in findings()
    Consumer.objects.update(deleted_at=Now())
    finding = findings()["deleted_consumer_dead"]
    assert not finding["is_error"]
    place = f"{consumer.channel.name}/{consumer.name}"
    assert finding["text"].startswith(f"{place} is deleted and 1 of its jobs are DEAD")


def test_expired_leases_that_were_not_reaped_are_an_error() -> None:
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer)
    assert "not_reaped" not in findings()
    pass_time()
    assert findings()["not_reaped"]["is_error"]
    assert findings()["not_reaped"]["text"].startswith("1 lease expired at ")
    Job.objects.all().delete()  # as if it was settled while its lease was renewed
    assert Lease.objects.exists()
    assert "not_reaped" not in findings()


def test_leases_that_no_process_would_end_are_named_before_they_are_over() -> None:
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer)
    assert "no_reaper" not in findings()
    with override_settings(PULLJOBS={"REAP_WHILE_SERVING": False}):
        assert "REAP_WHILE_SERVING" in findings()["no_reaper"]["text"]
        register()
        assert "no_reaper" not in findings()


def test_a_silent_node_is_an_error_while_it_holds_leases() -> None:
    node = register(heartbeat_at=Now() - HOUR)
    assert not findings()["node_gone"]["is_error"]
    assert findings()["node_gone"]["text"].endswith("It holds no lease.")
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer, node_id=node.pk)
    assert findings()["node_gone"]["is_error"]
    with override_settings(PULLJOBS={"HEARTBEAT_INTERVAL": HOUR}):
        assert "node_gone" not in findings()


def test_dead_loops_and_open_circuits_of_living_nodes_are_reported() -> None:
    register(
        report={
            "loops": {"fetcher": {"alive": False}, "flusher": {"alive": True}},
            "circuits": {"orders/invoicing": {"state": "open", "level": 3, "seconds": 8}},
        }
    )
    by_code = findings()
    assert "its fetcher is dead" in by_code["dead_loop"]["text"]
    assert "orders/invoicing" in by_code["circuit"]["text"]
    assert not by_code["circuit"]["is_error"]


def test_loops_that_fail_again_and_again_are_reported() -> None:
    """Doctor reports loops that failed ten times in a row, for example because the disk is full."""
    loops = {"flusher": {"failures": 10}, "fetcher": {"failures": 10}, "reaper": {"failures": 9}}
    register(report={"loops": loops})
    failing = findings()["failing_loop"]
    assert failing["is_error"]
    assert "fail again and again: fetcher, flusher. Read the error in the log" in failing["text"]


def test_a_consumer_that_is_held_back_is_reported_with_the_cause() -> None:
    register(report={"circuits": {"orders/invoicing": open_circuit()}})
    text = findings()["circuit"]["text"]
    assert f"holds orders/invoicing back at level 2: {CAUSE}; one is tried in 3 s." in text


def test_a_task_that_is_held_back_is_reported_without_its_neighbours() -> None:
    circuit = open_circuit(state="half_open", seconds=0)
    circuits = {"tasks-default-default/tasks": circuit | {"tasks": {"shop.tasks.mail": circuit}}}
    register(report={"circuits": circuits})
    text = findings()["circuit"]["text"]
    assert "holds task shop.tasks.mail of tasks-default-default/tasks back" in text
    assert "one is tried at a time" in text


def test_dead_jobs_are_mentioned_and_are_no_error() -> None:
    consumer = ConsumerFactory.create(channel__name="orders", name="invoicing")
    assert "dead_jobs" not in findings()
    for _number in range(2):
        JobFactory.create(consumer=consumer, state="DEAD")
    found_dead = findings()["dead_jobs"]
    assert not found_dead["is_error"]
    assert "orders/invoicing has 2 dead jobs: " in found_dead["text"]
    assert "pulljobs list --state DEAD --only orders/invoicing" in found_dead["text"]
