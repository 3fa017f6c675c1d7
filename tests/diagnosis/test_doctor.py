"""`pulljobs doctor` names each thing that blocks, and nothing that does not."""

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import transaction
from django.db.models.functions import Now
from django.test import override_settings
from psycopg.errors import QueryCanceled

from pulljobs import operating
from pulljobs.diagnosis import doctor
from pulljobs.models import Consumer, Node
from pulljobs.storage import nodes
from tests.diagnosis.commands import answer, text
from tests.factories import USING, ConsumerFactory, claimed, published
from tests.sessions import FORGET, Thread, pass_time, query, session, wait_until

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]
HOUR = timedelta(hours=1)


def findings(*arguments: str) -> dict[str, dict[str, Any]]:
    content, code = answer("doctor", *arguments)
    assert code == int(any(one["is_error"] for one in content["findings"]))
    return {one["code"]: one for one in content["findings"]}


@pytest.fixture(autouse=True)
def _partitions() -> None:
    """As every worker makes them."""
    answer("maintain")


def test_nothing_blocks_a_new_installation() -> None:
    assert findings() == {}
    assert text("doctor") == "Nothing blocks.\n"


def test_old_snapshot_is_named_with_pid_and_the_beginning_of_its_query() -> None:
    with session() as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        [pid] = other.execute("SELECT pg_backend_pid()").fetchone() or [0]
        other.execute("SELECT 'about the customers' FROM pulljobs_job -- " + "x" * 200)
        assert "old_snapshot" not in findings("--snapshot-age", "60")
        content, code = answer("doctor", "--snapshot-age", "0")
    # Autovacuum may have one, too.
    [found] = [one for one in content["findings"] if f" {pid} " in one["text"]]
    assert (found["code"], found["is_error"], code) == ("old_snapshot", True, 1)
    assert "about the customers" in found["text"]
    assert "x" * 100 not in found["text"]


def test_a_vacuum_keeps_nothing_from_being_cleaned() -> None:
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
    assert not [one for one in content["findings"] if f" {pid} " in one["text"]]


@pytest.mark.parametrize("who", ["consumer", "channel"])
def test_pause_is_told_and_no_error(who: str) -> None:
    """Nobody has to serve it meanwhile."""
    consumer = ConsumerFactory.create()
    row: Any = consumer if who == "consumer" else consumer.channel
    row.paused_until = Now() + HOUR
    row.save()
    published(consumer)
    found = findings()
    assert "no_worker" not in found
    assert not found["paused"]["is_error"]
    assert f"{consumer.channel.name}/{consumer.name}" in found["paused"]["text"]


def test_full_keys_are_named() -> None:
    consumer = ConsumerFactory.create(max_queued_per_key=1)
    published(consumer, key="customer-7")
    found = findings()["full_keys"]
    assert "customer-7" in found["text"]
    assert "reject" in found["text"]


def test_full_keys_are_looked_for_among_so_many_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """By key; of the jobs in flight only where they count."""
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
    found = findings()
    assert "pulljobs_message_default holds 1 rows" in found["default_partition"]["text"]
    assert found["missing_partition"]["is_error"]
    answer("maintain")
    assert not {"default_partition", "missing_partition"} & set(findings())


def test_tables_of_another_owner_are_told() -> None:
    query("CREATE ROLE pulljobs_app_of_test")
    try:
        query("GRANT ALL ON ALL TABLES IN SCHEMA public TO pulljobs_app_of_test")
        query("SET ROLE pulljobs_app_of_test")
        assert "pulljobs_archived_job" in findings()["not_owner"]["text"]
    finally:
        query("RESET ROLE")
        query("DROP OWNED BY pulljobs_app_of_test")
        query("DROP ROLE pulljobs_app_of_test")


def register(**fields: Any) -> Node:
    node_id = uuid4()
    nodes.register(USING, node_id, "host:1")
    Node.objects.filter(pk=node_id).update(**fields)
    return Node.objects.get(pk=node_id)


def test_consumer_that_nobody_serves_is_an_error_while_it_has_jobs() -> None:
    consumer: Consumer = ConsumerFactory.create()
    assert "no_worker" not in findings()
    published(consumer)
    assert findings()["no_worker"]["is_error"]
    place = f"{consumer.channel.name}/{consumer.name}"
    register(report={"serves": [place]}, heartbeat_at=Now() - HOUR, stopped_at=Now())
    assert "no_worker" in findings()
    register(report={"serves": [place]})
    assert "no_worker" not in findings()


def test_what_is_due_later_needs_nobody_and_costs_nothing() -> None:
    """However much of it there is."""
    query(FORGET.replace("%", "%%"))
    consumer = ConsumerFactory.create()
    query(DUE_LATER, [consumer.pk])
    query("ANALYZE pulljobs_job")
    with transaction.atomic(using=USING):
        before = blocks_read()
        assert list(doctor.unserved_consumers()) == []
        assert blocks_read() - before < 100


DUE_LATER = """
INSERT INTO pulljobs_job
    (id, consumer_id, message_id, available_at, retry_count, deliveries, priority, state)
SELECT n, %s, n, now() + interval '1 day', 0, 0, n %% 3, 'QUEUED'
FROM generate_series(1, 30000) AS n
"""


def blocks_read() -> int:
    """By this transaction, of the job table and its indexes."""
    [(read,)] = query(
        "SELECT sum(pg_stat_get_xact_blocks_fetched(oid))::int FROM pg_class"
        " WHERE relname ~ '^pulljobs_job(_|$)'"
    )
    return int(read)


def test_jobs_that_wait_for_a_deleted_consumer_are_an_error() -> None:
    """Those in flight end, and dead ones have ended."""
    consumer: Consumer = ConsumerFactory.create()
    dead, _held, waiting = (published(consumer)[0] for _ in range(3))
    operating.kill([dead], by="a test")
    claimed(consumer)
    assert "deleted_consumer" not in findings()
    Consumer.objects.update(deleted_at=Now())
    found = findings()["deleted_consumer"]
    assert found["is_error"]
    place = f"{consumer.channel.name}/{consumer.name}"
    assert found["text"].startswith(f"{place} is deleted and 1 of its jobs can never run")
    operating.kill([waiting], by="a test")
    assert "deleted_consumer" not in findings()


def test_dead_jobs_of_a_deleted_consumer_are_told() -> None:
    """They keep the days of their messages, and no page of the API shows them."""
    consumer: Consumer = ConsumerFactory.create()
    operating.kill(published(consumer), by="a test")
    assert "deleted_consumer_dead" not in findings()
    Consumer.objects.update(deleted_at=Now())
    found = findings()["deleted_consumer_dead"]
    assert not found["is_error"]
    place = f"{consumer.channel.name}/{consumer.name}"
    assert found["text"].startswith(f"{place} is deleted and 1 of its jobs are DEAD")


def test_leases_that_nobody_reaps_are_an_error() -> None:
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer)
    assert "not_reaped" not in findings()
    pass_time()
    assert findings()["not_reaped"]["is_error"]


def test_leases_that_no_process_would_end_are_named_before_they_are_over() -> None:
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer)
    assert "no_reaper" not in findings()
    with override_settings(PULLJOBS={"REAP_WHILE_SERVING": False}):
        assert "REAP_WHILE_SERVING" in findings()["no_reaper"]["text"]
        register()
        assert "no_reaper" not in findings()


def test_node_that_is_gone_is_an_error_while_it_holds_leases() -> None:
    node = register(heartbeat_at=Now() - HOUR)
    assert not findings()["node_gone"]["is_error"]
    consumer = ConsumerFactory.create()
    published(consumer)
    claimed(consumer, node_id=node.pk)
    assert findings()["node_gone"]["is_error"]
    with override_settings(PULLJOBS={"HEARTBEAT_INTERVAL": HOUR}):
        assert "node_gone" not in findings()


def test_dead_loops_and_open_circuits_of_living_nodes_are_told() -> None:
    register(
        report={
            "loops": {"fetcher": {"alive": False}, "flusher": {"alive": True}},
            "circuits": {"orders/invoicing": {"state": "open", "level": 3, "seconds": 8}},
        }
    )
    found = findings()
    assert "its fetcher is dead" in found["dead_loop"]["text"]
    assert "orders/invoicing" in found["circuit"]["text"]
    assert not found["circuit"]["is_error"]
