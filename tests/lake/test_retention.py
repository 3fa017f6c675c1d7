"""A day leaves PostgreSQL once the lake verifiably has all of it, and comes back unchanged."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import override_settings
from psycopg.conninfo import make_conninfo
from pyarrow import parquet
from pyspark.sql import SparkSession

from pulljobs import operating
from pulljobs.engine import outcomes, telemetry
from pulljobs.engine.telemetry import LoopFailed
from pulljobs.errors import LakeError
from pulljobs.lake import ledger, replicas, verified_days
from pulljobs.lake.models import LakeDay
from pulljobs.lake.spark import comparing, restoring, verifying, watching
from pulljobs.lake.spark import session as spark_session
from pulljobs.lake.spark.export_run import Sessions
from pulljobs.lake.spark.watching import LakeService, LakeStep
from pulljobs.models import Consumer
from pulljobs.storage import (
    grants,
    jobs,
    partition_dropping,
    partition_locks,
    partition_making,
    partitions,
)
from pulljobs.storage.partitions import Partition
from pyspark_pulljobs import adbc
from pyspark_pulljobs.filesystems import open_location
from tests.databases.test_grants import being, grant, role
from tests.days import drop_days, no_days
from tests.factories import USING, ConsumerFactory, TimedRun, claimed, published
from tests.lake.lakes import Place, assert_same, files, lakes, ours, run, setting_of
from tests.sessions import query, session, wait_for_other_transactions

__all__ = ["role"]
pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]
TODAY = datetime.now(UTC).date()
OLD = TODAY - timedelta(days=40)
OLDER = TODAY - timedelta(days=41)
OLDEST = TODAY - timedelta(days=42)
RETENTION = timedelta(days=30)


@pytest.fixture(autouse=True)
def place(place: Place) -> Iterator[Place]:
    with no_days():
        yield place


def settled_on(day: date, consumer: Consumer, count: int = 5) -> None:
    """Make `count` messages and settlements of a past day, one DEAD, in partitions of that day."""
    published(consumer, count)
    held = claimed(consumer, count)
    run_of_each = TimedRun(time.monotonic() - 1, 1 / 3)
    ends = [outcomes.deliver(claim, '{"n": 1}', run_of_each) for claim in held[1:]]
    jobs.finish(USING, [*ends, outcomes.reject(held[0], "bad")])
    jobs.delete(USING, [held[0].job_id])
    for table in partitions.PARTITIONED:
        low, _ = Partition(table, day).bounds
        query(
            f"UPDATE {table}_default SET id = %s + row FROM"
            f" (SELECT id AS old, row_number() OVER () AS row FROM {table}_default) AS numbered"
            " WHERE id = old",
            [low],
        )
        assert partition_making._make(USING, Partition(table, day))


def names(day: date) -> list[str]:
    return [Partition(table, day).name for table in ("pulljobs_archived_job", "pulljobs_message")]


def there() -> list[str]:
    return sorted(
        partition.name
        for table in partitions.PARTITIONED
        for partition in partitions.existing(USING, table)
    )


def tamper(lake: Place, table: str, column: str, value: Any) -> None:
    """Change a column of one row of a table of the lake, by writing its file again."""
    [path, *_] = files(lake, table)
    filesystem, path = open_location(str(lake)), path.removeprefix(f"{lake}/")
    rows = parquet.ParquetFile(path, filesystem=filesystem).read()
    first = pc.equal(rows["id"], rows["id"][0])
    changed = pc.if_else(first, pa.scalar(value, rows[column].type), rows[column])
    place = rows.schema.names.index(column)
    tampered = rows.set_column(place, rows.schema.field(column), changed)
    parquet.write_table(tampered, path, filesystem=filesystem)


def verified(day: date, lake_: Place) -> None:
    """Record that a day is equal in the lake and the database, as `lake verify` does."""
    wait_for_other_transactions()
    now = ledger.read_horizon(USING)
    for table in partitions.PARTITIONED:
        verified_days.record_verified(
            USING, str(lake_), LakeDay(table=table, day=day, high_xid=now.xid, rows=5, checksum=0)
        )


@pytest.mark.usefixtures("spark")
def test_a_day_that_is_equal_goes_and_comes_back_and_is_not_exported_again(place: Place) -> None:
    consumer = ConsumerFactory.create()
    settled_on(OLD, consumer)
    run("export", "--with-payload")
    before = {table: ours(table) for table in ("archive", "messages")}
    columns = "SELECT row(t.*)::text FROM {} AS t ORDER BY 1"
    rows = {table: query(columns.format(table)) for table in partitions.PARTITIONED}

    retained = run("retain", "--older-than", "30")
    assert sorted(retained["dropped"]) == sorted(names(OLD))
    assert there() == []
    assert ours("archive")[0] == 0
    assert LakeDay.objects.exclude(dropped_at=None).count() == 2

    assert run("restore", "--day", str(OLD))["rows"] == {"archive": 5, "messages": 5}
    assert {table: ours(table) for table in before} == before
    assert {table: query(columns.format(table)) for table in partitions.PARTITIONED} == rows
    assert run("export")["runs"] == []
    assert_same(place)
    assert run("verify")["equal"]

    assert run("retain", "--older-than", "30")["dropped"] == []  # it is to stay as long again
    assert sorted(run("retain", "--older-than", "30", "--day", str(OLD))["dropped"]) == names(OLD)


@pytest.mark.usefixtures("spark")
def test_a_day_whose_lake_was_tampered_with_stays_and_the_rows_are_named(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export", "--with-payload")
    tamper(place, "archive", "deliveries", 9)
    tamper(place, "messages", "payload", b"no")
    with pytest.raises(SystemExit) as ended:
        call_command("pulljobs", "lake", "retain", "--older-than", "30")
    assert ended.value.code == 1
    assert capsys.readouterr().out.count("STAYS, the lake differs") == 2
    assert there() == sorted(names(OLD))
    query(f"DELETE FROM {names(OLD)[0]} WHERE id = (SELECT max(id) FROM {names(OLD)[0]})")
    [(first, last)] = query("SELECT min(id), max(id) + 1 FROM pulljobs_archived_job")
    with pytest.raises(SystemExit):
        call_command("pulljobs", "lake", "verify")
    output = capsys.readouterr().out
    assert f"archive {OLD}: DIFFERS, in the database and the lake: rows 4 and 5" in output
    assert f"archive {OLD}: changed: {first}\n" in output
    assert f"archive {OLD}: only in lake: {last}\n" in output
    assert f"messages {OLD}: DIFFERS" in output
    assert "1 payloads of the lake are broken" in output


@pytest.mark.usefixtures("spark")
def test_a_day_that_was_dropped_between_others_is_no_difference(place: Place) -> None:
    """`lake verify` compares only days that the database has, unless the command names the day."""
    consumer = ConsumerFactory.create()
    for day in (OLD, OLDER, OLDEST):
        settled_on(day, consumer)
    run("export", "--with-payload")
    assert len(run("retain", "--older-than", "30", "--day", str(OLDER))["dropped"]) == 2
    verification = run("verify")
    assert verification["equal"]
    assert {day["day"] for day in verification["days"]} == {str(OLD), str(OLDEST)}
    with pytest.raises(SystemExit):
        run("verify", "--day", str(OLDER))


def session_of_tests(spark: SparkSession) -> Sessions:
    return lambda **_hints: nullcontext(spark)


def test_of_a_day_that_differs_only_the_rows_to_report_come_to_the_driver(
    place: Place, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark tasks compare the rows of a day, and only rows to report reach the driver."""
    settled_on(OLD, ConsumerFactory.create())
    run("export")
    [first, *others] = [id for (id,) in query("SELECT id FROM pulljobs_archived_job ORDER BY 1")]
    query(f"DELETE FROM {names(OLD)[0]} WHERE id <> %s", [first])
    tamper(place, "archive", "deliveries", 9)
    monkeypatch.setattr(verifying, "MAX_REPORTED", 2)
    of = verifying.take_snapshot(USING, str(place))
    [comparison] = comparing.compare_days(session_of_tests(spark), USING, of, {"archive": [OLD]})
    monkeypatch.setattr(adbc, "select", None)  # of this process, not of tasks
    difference = verifying.find_difference(spark, USING, of, comparison)
    assert difference == verifying.Difference([], others[:2], [first])


@pytest.mark.usefixtures("spark")
def test_drops_before_a_locked_partition_are_recorded_and_reported(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export", "--with-payload")
    monkeypatch.setattr(partition_locks, "VACUUM_TIMEOUT", timedelta(milliseconds=100))
    monkeypatch.setattr(partition_locks, "PATIENCE", timedelta(0))
    archive, messages = names(OLD)
    with session() as other:
        other.execute(f"LOCK TABLE {archive} IN SHARE UPDATE EXCLUSIVE MODE")
        with pytest.raises(CommandError, match=f"{archive} cannot .* again. Dropped: {messages}."):
            run("retain", "--older-than", "30")
    assert verified_days.find_dropped(USING, str(place)) == {Partition("pulljobs_message", OLD)}
    assert run("retain", "--older-than", "30")["dropped"] == [archive]


def test_upkeep_drops_only_what_was_verified(place: Place) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export", "--with-payload")
    with override_settings(PULLJOBS={"LAKE": setting_of(place), "RETENTION": RETENTION}):
        assert operating.maintain().dropped == []
        verified(OLD, place)
        assert sorted(day.name for day in operating.maintain().dropped) == sorted(names(OLD))
        run("restore", "--day", str(OLD))
        assert operating.maintain().dropped == []  # it came back for another retention
        query("UPDATE pulljobs_lake_day SET restored_at = now() - interval '31 days'")
        assert len(operating.maintain().dropped) == 2


def test_what_was_restored_stays_though_it_was_never_verified_or_differed_since(
    place: Place,
) -> None:
    """A restored day is dropped only after the retention and a new verification."""
    settled_on(OLD, ConsumerFactory.create())
    run("export", "--with-payload")
    drop_days()
    run("restore", "--day", str(OLD))
    with override_settings(PULLJOBS={"LAKE": setting_of(place), "RETENTION": RETENTION}):
        for table in partitions.PARTITIONED:
            verified_days.record_doubt(USING, str(place), table, OLD)
        verified_days.record_doubts(USING, str(place))  # as a rebase does
        verified(OLD, place)
        assert operating.maintain().dropped == []
        verified_days.record_doubts(USING, str(place))
        query("UPDATE pulljobs_lake_day SET restored_at = now() - interval '31 days'")
        assert {day.stays for day in operating.prunable(RETENTION)} == {
            "the lake has no verified copy of it"  # the time is over, but no verification followed
        }
        verified(OLD, place)
        assert len(operating.maintain().dropped) == 2


def test_only_what_came_back_is_noted_so(place: Place) -> None:
    """A restore marks as restored only those tables of the day whose rows it has written."""
    settled_on(OLD, ConsumerFactory.create())
    run("export", "--with-payload")
    verified(OLD, place)
    archive = Partition("pulljobs_archived_job", OLD)
    assert partition_dropping.drop(USING, archive)
    verified_days.record_drop(USING, str(place), [archive])
    restored = run("restore", "--day", str(OLD))
    assert list(restored["left_out"]) == ["messages"]  # they are there
    [day] = LakeDay.objects.exclude(restored_at=None)
    assert (day.table, day.dropped_at) == ("pulljobs_archived_job", None)


def test_a_row_that_came_after_the_last_verify_keeps_its_day(place: Place) -> None:
    settled_on(OLD, ConsumerFactory.create())
    verified(OLD, place)
    query(
        "INSERT INTO pulljobs_archived_job SELECT (row).* FROM (SELECT jsonb_populate_record("
        "t, jsonb_build_object('id', id + 1000, 'settled_xid', pg_current_xact_id()::text)) AS row"
        " FROM pulljobs_archived_job AS t LIMIT 1) AS one"
    )
    with override_settings(PULLJOBS={"LAKE": setting_of(place), "RETENTION": RETENTION}):
        assert operating.maintain().dropped == [Partition("pulljobs_message", OLD)]


def test_a_day_that_a_live_job_needs_stays(place: Place) -> None:
    consumer = ConsumerFactory.create()
    settled_on(OLD, consumer)
    published(consumer)
    query(
        "UPDATE pulljobs_job SET message_id = (SELECT min(id) FROM pulljobs_message WHERE id < %s)",
        [Partition("", OLD).bounds[1]],
    )
    verified(OLD, place)
    with override_settings(PULLJOBS={"LAKE": setting_of(place), "RETENTION": RETENTION}):
        assert operating.maintain().dropped == [Partition("pulljobs_archived_job", OLD)]


def test_messages_come_back_with_their_payloads_or_not_at_all(place: Place) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export")
    drop_days()
    restored = run("restore", "--day", str(OLD))
    assert restored["rows"] == {"archive": 5}
    assert "without their payloads" in restored["left_out"]["messages"]


def test_a_restore_that_was_cut_off_begins_again(place: Place) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export")
    query(f"ALTER TABLE pulljobs_archived_job DETACH PARTITION {names(OLD)[0]}")
    assert run("restore", "--day", str(OLD))["rows"] == {"archive": 5}
    assert ours("archive")[0] == 5


def test_a_day_that_cannot_be_restored_is_reported_in_one_line(place: Place) -> None:
    with pytest.raises(CommandError, match=r"Nothing of .* was restored"):
        run("restore", "--day", str(OLDER))
    settled_on(OLD, ConsumerFactory.create())
    run("export", "--with-payload")
    with pytest.raises(CommandError, match="exists: it can.t be filled"):
        run("restore", "--day", str(OLD))


def leave_one_in_the_default() -> None:
    """Leave a row of the day in the default partition, so that no partition can be attached."""
    with session() as other:
        other.execute(
            "INSERT INTO pulljobs_archived_job (id, job_id, message_id, consumer_id, created_at,"
            " settled_at, retry_count, deliveries, state)"
            " VALUES (%s, 1, 1, 1, now(), now(), 0, 1, 'DELIVERED')",
            [Partition("", OLD).bounds[0] + 100],
        )
        other.commit()


@pytest.mark.parametrize("when", ["before the load", "after the load"])
def test_a_day_of_which_a_row_is_there_is_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export")
    drop_days()
    loaded: list[pa.RecordBatch] = []
    as_csv = restoring._as_csv

    def loading(batch: pa.RecordBatch) -> bytes:
        loaded.append(batch)
        leave_one_in_the_default()
        return as_csv(batch)

    if when == "before the load":
        leave_one_in_the_default()
    monkeypatch.setattr(restoring, "_as_csv", loading)
    with pytest.raises(CommandError, match="are there, in the default partition"):
        run("restore", "--day", str(OLD))
    assert len(loaded) == (when == "after the load")
    assert query("SELECT to_regclass(%s)", [names(OLD)[0]]) == [(None,)]
    assert LakeDay.objects.count() == 0


def test_a_lake_that_the_ledger_does_not_know_is_rebased_before_a_restore(place: Place) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export")
    query("DELETE FROM pulljobs_lake_run")
    for verb in (["verify"], ["restore", "--day", str(OLD)]):
        with pytest.raises(CommandError, match="run `pulljobs lake rebase` first"):
            run(*verb)
        drop_days()
    run("rebase")
    assert run("restore", "--day", str(OLD))["rows"] == {"archive": 5}


VERBS = (["retain", "--older-than", "30"], ["restore", "--day", str(OLD)], ["rebase"])


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_a_role_that_owns_no_table_is_refused_before_any_change(verb: list[str]) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export", "--with-payload")
    query("CREATE ROLE pulljobs_lake_of_test")
    try:
        for statement in grants.statements(USING, "pulljobs_lake_of_test", "lake"):
            query(statement)
        query("SET ROLE pulljobs_lake_of_test")
        with pytest.raises(
            CommandError, match=r"^This role does not own .*: run it as their owner"
        ):
            run(*verb)
    finally:
        query("RESET ROLE")
        query("DROP OWNED BY pulljobs_lake_of_test; DROP ROLE pulljobs_lake_of_test")


@pytest.mark.parametrize("verb", [["export"], *VERBS], ids=lambda verb: verb[0])
def test_a_database_that_is_down_is_one_clear_line(
    verb: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = {**connection.get_connection_params(), "host": str(tmp_path)}
    monkeypatch.setattr(connection, "get_connection_params", lambda: elsewhere)
    with pytest.raises(CommandError, match="^The database fails: connection") as failed:
        run(*verb)
    assert "\n" not in str(failed.value)


def test_a_day_that_differs_is_doubted_even_if_spark_does_not_start(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A difference removes the day from the verified days before Spark starts to list the rows."""
    settled_on(OLD, ConsumerFactory.create())
    run("export")
    assert run("verify")["equal"]
    tamper(place, "archive", "error", "another")
    monkeypatch.setattr(spark_session, "open_session", no_session)
    with pytest.raises(CommandError, match="no Java"):
        run("verify")
    known = verified_days.find_verified(USING, setting_of(place))
    assert [partition.table for partition in known] == ["pulljobs_message"]


def no_session(*_name: object, **_hints: object) -> AbstractContextManager[SparkSession]:
    raise LakeError("there is no Java")


def test_a_service_outlives_a_server_that_takes_no_connection(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service reports a verification that gets no connection as LoopFailed, and goes on."""
    settled_on(OLD, ConsumerFactory.create())
    run("export")
    refused = make_conninfo(spark_session.dsn(), dbname="nosuch")
    monkeypatch.setattr(spark_session, "dsn", lambda *_using: refused)
    events: list[object] = []
    forget = telemetry.record_with(events.append)
    try:
        verify = LakeStep("verify", 60, lambda: watching._verify(no_session))
        assert list(LakeService([verify]).tick()) == []
    finally:
        forget()
    [failed] = events
    assert isinstance(failed, LoopFailed)
    assert failed.error.startswith("No connection to database 'nosuch'")


def test_a_service_whose_role_may_drop_nothing_says_so_once(place: Place, role: str) -> None:
    settled_on(OLD, ConsumerFactory.create())
    run("export")
    grant(role, "lake")
    retain = LakeStep("retain", 0, watching.Retention(no_session))
    service, kept = LakeService([retain]), partitions.existing(USING, "pulljobs_message")
    with (
        override_settings(PULLJOBS={"LAKE": setting_of(place), "RETENTION": RETENTION}),
        being(role),
    ):
        [(name, line)] = service.tick()
        assert name == "retain"
        assert "does not own pulljobs_archived_job and pulljobs_message: run `pulljobs main" in line
        assert list(service.tick()) == []
    assert partitions.existing(USING, "pulljobs_message") == kept


def test_a_server_that_ends_a_copy_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """`lake verify` reports an error of psycopg, which Django does not wrap, in one line."""

    def fail(*_args: object) -> None:
        raise psycopg.errors.AdminShutdown("terminating connection")

    monkeypatch.setattr(verifying, "take_snapshot", fail)
    with pytest.raises(CommandError, match=r"^The database fails: terminating connection$"):
        run("verify")


def test_few_rows_are_compared_over_few_connections(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts of a day share connections, as each new connection first reads all types."""
    published(ConsumerFactory.create())
    run("export")
    monkeypatch.setattr(replicas, "bound_connections", lambda: 2)
    opened: list[adbc.ArrowConnection] = []
    connect = adbc.connect

    def note(dsn: str) -> adbc.ArrowConnection:
        opened.append(connect(dsn))
        return opened[-1]

    monkeypatch.setattr(adbc, "connect", note)
    assert run("verify")["equal"]
    assert 1 <= len(opened) <= 2
    with pytest.raises(adbc.DRIVER_ERRORS), opened[0].execute("SELECT 1"):
        pass


def test_spark_this_process_and_duckdb_read_the_same(place: Place, spark: SparkSession) -> None:
    """Spark, this process and DuckDB compute equal counts and checksums, of all kinds of values."""
    consumer = ConsumerFactory.create()
    published(consumer, payload=b"\xff", key="ü", headers={"a": "é"}, message_id="m 1", priority=3)
    settled_on(OLD, consumer, 7)
    settled_on(OLDER, consumer, 3)
    run("export")
    of = verifying.take_snapshot(USING, str(place))
    for table in ("archive", "messages"):
        every = {file.day for file in of.files[table]}
        days = comparing._sum_lake(spark, of, table, every)
        assert comparing._sum_lake_here(of, table, every) == days
        sums = [sum(day[place] for day, _ in days.values()) for place in range(3)]
        assert tuple(sums) == lakes(place, table) == ours(table)
