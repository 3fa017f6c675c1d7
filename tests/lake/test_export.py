"""Every settlement and every message goes to the lake once, wherever an export is cut off."""

import os
import random
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError
from django.db import InterfaceError, connections, transaction
from django.test import override_settings
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from pulljobs import operating
from pulljobs.engine import outcomes, telemetry
from pulljobs.engine.outcomes import Held
from pulljobs.errors import LakeError
from pulljobs.lake import lock
from pulljobs.lake.models import LakeRun
from pulljobs.lake.spark import export_run, exporting, session, slices, tables
from pulljobs.lake.spark.exporting import Exported, ExportOptions
from pulljobs.lake.telemetry import ExportHeldBack
from pulljobs.lake.verbs import export as watching
from pulljobs.models import Consumer
from pulljobs.publishing import publish, publish_many
from pulljobs.states import State
from pulljobs.storage import jobs
from pulljobs.storage.rows import Taken
from pyspark_pulljobs import adbc, writing
from tests.factories import (
    MAX_LEASE,
    USING,
    ConsumerFactory,
    JobFactory,
    TimedRun,
    claimed,
    published,
)
from tests.lake.cutting import STEPS
from tests.lake.lakes import (
    Cutter,
    Place,
    assert_same,
    files,
    lake_at,
    lakes,
    ours,
    read_rows,
    run,
)
from tests.sessions import Thread, query, wait_for_other_transactions
from tests.sessions import session as other_session

pytestmark = pytest.mark.django_db(transaction=True)
ROUNDS = int(os.environ.get("PULLJOBS_TEST_EXPORTS", len(STEPS)))
MASTER = os.environ.get("PULLJOBS_TEST_EXPORT_MASTER", "")
WRITERS = 4


def settled(consumer: Consumer, count: int = 1) -> None:
    published(consumer, count)
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer, count)])


class Rolled(Exception):
    pass


class Writer:
    """Publisher and worker whose transactions commit in any order, or roll back."""

    def __init__(self, consumer: Consumer, seed: int) -> None:
        self.consumer, self._dice = consumer, random.Random(seed)
        self.stopped = threading.Event()

    def work(self) -> int:
        done = 0
        while not self.stopped.is_set():
            try:
                with transaction.atomic(USING):
                    self._step()
                    time.sleep(self._dice.random() * 0.03)  # what began later may commit earlier
                    if self._dice.random() < 0.2:
                        raise Rolled
                done += 1
            except Rolled:
                pass
        return done

    def _step(self) -> None:
        publish_many(self.consumer.channel.name, [b"x" * self._dice.randrange(200)] * 5)
        held = claimed(self.consumer, 5)
        ends = [self._settlement(claim) for claim in held]
        jobs.finish(USING, ends)
        dead = [
            claim.job_id for claim, end in zip(held, ends, strict=True) if end.event == "reject"
        ]
        operating.redrive(dead[:1])
        for job in dead[1:2]:
            took = jobs.take(
                USING, self.consumer.pk, job, source=State.DEAD,
                lease_duration=timedelta(seconds=30),
                max_lease=MAX_LEASE, via="post",
            )  # fmt: skip
            assert isinstance(took, Taken)
            jobs.finish(USING, [outcomes.deliver(Held(job, took.lease_token))])

    def _settlement(self, held: Held) -> outcomes.Settlement:
        if self._dice.random() < 0.5:
            return outcomes.reject(held, "bad | ünd\nworse")
        run = TimedRun(time.monotonic() - 9, self._dice.random())
        return outcomes.deliver(held, f'{{"n": {self._dice.randrange(9)}}}', run)


def test_rows_of_writers_who_commit_out_of_order_go_once_though_exports_are_killed(
    place: Place, request: pytest.FixtureRequest
) -> None:
    if MASTER:
        request.getfixturevalue("spark")
    writers = [Writer(ConsumerFactory.create(), seed) for seed in range(WRITERS)]
    threads = [Thread(writer.work) for writer in writers]
    cutter = Cutter(MASTER)
    try:
        for number in range(ROUNDS):
            step = list(STEPS)[number % len(STEPS)]
            assert cutter.cut(step) == signal.SIGKILL, step
            run("export", "--with-payload", *(["--master", MASTER] if MASTER else []))
    finally:
        for writer in writers:
            writer.stopped.set()
        cutter.end()
    assert sum(thread.result() for thread in threads) > 4 * ROUNDS
    run("export")
    assert_same(place)
    if MASTER:  # read by Spark, too
        assert run("verify")["equal"]
    assert not LakeRun.objects.exclude(state=LakeRun.State.DONE).exists()
    [(redriven,)] = query(
        "SELECT count(*) FROM (SELECT job_id FROM pulljobs_archived_job GROUP BY 1"
        " HAVING count(*) > 1) AS twice"
    )
    assert redriven > 0
    print(f"{ROUNDS} rounds: database {ours('archive')}, lake {lakes(place, 'archive')}")


def test_files_of_a_run_that_was_cut_off_do_not_stay(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next run deletes files of a run that was cut off, which plain readers would read."""
    settled(ConsumerFactory.create())

    def fail(*args: object) -> None:
        raise LakeError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(tables.Table, "commit", fail)
        with pytest.raises(CommandError, match="cut off"):
            run("export")
    assert run("export")["resumed"]
    named = [path.rpartition("/")[2] for path in files(place, "archive")]
    assert [path.name for path in place.glob("archive/day=*/*")] == named


def test_nothing_new_leaves_no_trace(place: Place) -> None:
    assert run("export")["runs"] == []
    settled(ConsumerFactory.create())
    assert run("export")["rows"] == {"archive": 1, "messages": 1}
    assert run("export")["runs"] == []
    assert LakeRun.objects.count() == 1


def test_what_commits_late_is_not_lost(place: Place) -> None:
    consumer = ConsumerFactory.create()
    late, early = published(consumer, 2)
    held = claimed(consumer, 2)
    with other_session() as other:
        other.execute(
            "INSERT INTO pulljobs_archived_job (job_id, message_id, consumer_id, created_at,"
            " settled_at, retry_count, deliveries, state)"
            " VALUES (%s, 1, %s, now(), now(), 0, 1, 'DELIVERED')",
            [late, consumer.pk],
        )
        jobs.finish(USING, [outcomes.deliver(claim) for claim in held if claim.job_id == early])
        run("export")
        assert read_rows(place, "archive", "job_id") == []
        other.commit()
    run("export")
    assert sorted(read_rows(place, "archive", "job_id")) == sorted([(late,), (early,)])


def test_a_job_that_is_redriven_has_two_rows(place: Place) -> None:
    job = JobFactory.create(state="DEAD")
    run("export")
    operating.redrive([job.id])
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(job.consumer)])
    run("export")
    states = read_rows(place, "archive", "state, channel, consumer")
    names = (job.consumer.channel.name, job.consumer.name)
    assert sorted(states) == [("DEAD", *names), ("DELIVERED", *names)]


@pytest.mark.parametrize("reader", ["adbc", "copy"])
def test_values_come_as_they_are(place: Place, reader: str) -> None:
    """Texts, bytes, NULL and numbers are equal in the lake, by both ways of reading."""
    consumer = ConsumerFactory.create()
    text = 'a "quoted", line\nand é 🎉 | \\N'
    publish(consumer.channel.name, b"\x00\xff\x10", key=text, headers={"a": text})
    publish(consumer.channel.name, b"")
    held = claimed(consumer, 2)
    run_of_first = TimedRun(time.monotonic() - 9, 0.1 + 0.2)
    jobs.finish(
        USING,
        [outcomes.reject(held[0], text)._replace(run=run_of_first), outcomes.reject(held[1], "")],
    )
    run("export", "--with-payload", "--reader", reader)
    assert_same(place)
    rows = read_rows(
        place, "messages", "key, payload, payload_bytes, json_extract_string(headers, 'a')"
    )
    assert sorted(rows, key=str) == [(text, b"\x00\xff\x10", 3, text), (None, b"", 0, None)]
    rows = read_rows(place, "archive", "error, result, run_seconds, started_at IS NULL")
    assert sorted(rows) == [("", None, None, True), (text, None, 0.1 + 0.2, False)]


def test_payloads_go_by_choice(place: Place) -> None:
    """Payloads are exported for the named channel and up to the given size only."""
    small, other = ConsumerFactory.create(), ConsumerFactory.create()
    for payload in (b"1234", b"12345"):
        publish(small.channel.name, payload)
    publish(other.channel.name, b"12")
    run("export", "--with-payload", "--payload-cap", "4", "--channel", small.channel.name)
    rows = read_rows(place, "messages", "payload, payload_bytes")
    assert sorted(rows, key=str) == [(None, 2), (None, 5), (b"1234", 4)]


@pytest.mark.own_session  # poolers do not pass on PGOPTIONS
@pytest.mark.parametrize("reader", ["adbc", "copy"])
@pytest.mark.parametrize("form", ["hex", "escape"])
def test_bytes_are_read_in_every_form_in_which_the_server_writes_them(
    place: Place, monkeypatch: pytest.MonkeyPatch, reader: str, form: str
) -> None:
    """Bytes are exported unchanged with either value of bytea_output, which a role may set."""
    payloads = {b"", b"\\x00", b"ABdeadbeef", bytes(range(256))}
    publish_many(ConsumerFactory.create().channel.name, list(payloads))
    monkeypatch.setenv("PGOPTIONS", f"-c bytea_output={form}")
    run("export", "--with-payload", "--reader", reader)
    assert {payload for (payload,) in read_rows(place, "messages", "payload")} == payloads


@pytest.mark.parametrize("flags", [("--channel", "c"), ("--payload-cap", "0")])
def test_a_choice_of_payloads_without_payloads_is_refused(
    place: Place, flags: tuple[str, str]
) -> None:
    with pytest.raises(CommandError, match=r"none are exported: add --with-payload\.$"):
        run("export", *flags)


def test_an_unknown_channel_is_one_clear_line(place: Place) -> None:
    with pytest.raises(CommandError, match=r"^There is no channel 'nosuch': correct the name\.$"):
        run("export", "--with-payload", "--channel", "nosuch")


def test_a_channel_that_is_created_while_names_are_read_stops_no_export() -> None:
    known = ConsumerFactory.create()
    created: list[bool] = []

    def create_after(execute: Callable[..., Any], *statement: Any) -> Any:
        result = execute(*statement)
        if not created:
            created.append(True)
            ConsumerFactory.create()
        return result

    with connections[USING].execute_wrapper(create_after):
        names = export_run._registry(USING)
    assert names["archive"][known.pk] == (known.channel.name, known.name)


def test_no_lake_is_one_clear_line() -> None:
    with override_settings(PULLJOBS={}), pytest.raises(CommandError, match="There is no lake: set"):
        run("export")


def test_one_export_at_a_time(place: Place) -> None:
    with (
        lock.hold_lock(USING),
        pytest.raises(CommandError, match="Another process writes to the lake"),
    ):
        run("export")


def test_one_who_lost_the_lock_publishes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export whose lock was lost fails, and the next one finishes its run."""
    settled(ConsumerFactory.create())
    written = writing.write

    def cut(*args: Any) -> object:
        query(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
            " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        connections.close_all()  # of the thread that writes
        return written(*args)

    with monkeypatch.context() as patch:
        patch.setattr(writing, "write", cut)
        with pytest.raises(CommandError, match="connection that holds the lock of the lake"):
            run("export")
    assert files(place, "archive") == []
    assert run("export")["resumed"]
    assert_same(place)


def test_rows_that_are_not_all_written_are_not_published(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled(ConsumerFactory.create())
    monkeypatch.setattr(slices, "count_rows", lambda *_: {"archive": 2, "messages": 1})
    with pytest.raises(CommandError, match="wrote 1 rows of archive, PostgreSQL has 2"):
        run("export")
    assert files(place, "archive") == []


@contextmanager
def cut_off_from_the_server(place: Place) -> Iterator[None]:
    connect = adbc.connect

    def cut(dsn: str) -> adbc.ArrowConnection:
        connection = connect(dsn)
        with connection.execute("SELECT pg_backend_pid() AS pid") as answer:
            [row] = answer.read_all().to_pylist()
        query("SELECT pg_terminate_backend(%s)", [row["pid"]])
        connections.close_all()  # of the thread that writes
        return connection

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adbc, "connect", cut)
        yield


@contextmanager
def refused_by_the_server(place: Place) -> Iterator[None]:
    refused = make_conninfo(session.dsn(), dbname="nosuch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "dsn", lambda *_using: refused)
        yield


@contextmanager
def without_a_directory(place: Path) -> Iterator[None]:
    place.touch()
    yield
    place.unlink()


@contextmanager
def without_a_log(place: Path) -> Iterator[None]:
    place.mkdir()
    (place / "archive").touch()
    yield
    (place / "archive").unlink()


LOCAL_TROUBLES = [without_a_directory, without_a_log]
TROUBLES = [cut_off_from_the_server, refused_by_the_server, *LOCAL_TROUBLES]


@pytest.mark.parametrize("trouble", TROUBLES)
def test_trouble_that_passes_is_reported_in_one_line_and_the_next_run_goes_on(
    place: Place, trouble: Callable[[Place], AbstractContextManager[None]]
) -> None:
    """Each trouble raises a LakeError of one line, and the next export exports all rows."""
    if not isinstance(place, Path) and trouble in LOCAL_TROUBLES:
        pytest.skip("an object store has no directories")
    settled(ConsumerFactory.create())
    wait_for_other_transactions()
    with trouble(place), pytest.raises(LakeError, match=r"\A[^\n]+\Z"):
        exporting.export(ExportOptions(), partial(session.open_session, "test"))
    run("export")
    assert_same(place)


@pytest.mark.owner
def test_a_watch_keeps_its_session_until_a_run_fails_in_it() -> None:
    """A watch stops its Spark session once a run has failed in it, and opens another one."""
    calls: list[str] = []

    @contextmanager
    def opened() -> Iterator[Any]:
        calls.append("opened")
        yield len(calls)
        calls.append("stopped")

    with ExitStack() as stack:
        kept = session.keep_session(opened, stack)
        with kept() as first, kept() as same:
            assert first is same
        with pytest.raises(LakeError, match="gone"), kept():
            raise LakeError("gone")
        assert calls == ["opened", "stopped"]
        with kept():
            assert calls == ["opened", "stopped", "opened"]
    assert calls[3:] == ["stopped"]


def test_a_watch_outlives_a_connection_that_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[Callable[[], None]] = []
    raised = [InterfaceError("connection already closed")]

    def once(_options: object, _sessions: object) -> Exported:
        if raised:
            raise raised.pop()
        handlers[0]()
        return Exported(runs=[7])

    monkeypatch.setattr(signal, "signal", lambda _number, handler: handlers.append(handler))
    monkeypatch.setattr(watching, "_once", once)
    assert watching._watched({"watch": 0.001}, partial(session.open_session, "test")).runs == [7]


def test_another_cluster_is_refused_until_it_is_rebased(place: Place) -> None:
    """An export from another cluster, as after a restore of a dump, needs a `lake rebase` first."""
    consumer = ConsumerFactory.create()
    settled(consumer, 3)
    run("export")
    before = lakes(place, "archive")
    far = 10**9
    query("UPDATE pulljobs_archived_job SET settled_xid = %s", [far - 5])
    query("UPDATE pulljobs_message SET published_xid = %s", [far - 5])
    query("UPDATE pulljobs_lake_run SET high_xid = %s, system_identifier = 1", [far])
    settled(consumer, 2)
    with pytest.raises(CommandError, match="lake rebase"):
        run("export")
    assert run("rebase")["fresh"] == {"archive": 2, "messages": 2}
    assert run("export")["rows"] == {"archive": 2, "messages": 2}
    assert run("export")["runs"] == []
    assert_same(place)
    assert lakes(place, "archive")[0] == before[0] + 2


@pytest.mark.owner
def test_a_lake_that_knows_more_than_its_database_is_refused_until_it_is_rebased(
    place: Place,
) -> None:
    """A lake with runs that PostgreSQL lacks, as after the restore of a backup, is refused."""
    consumer = ConsumerFactory.create()
    settled(consumer, 2)
    run("export")
    settled(consumer, 1)
    run("export")
    query("DELETE FROM pulljobs_lake_run")
    query("ALTER SEQUENCE pulljobs_lake_run_id_seq RESTART")
    settled(consumer, 3)
    with pytest.raises(CommandError, match="does not know"):
        run("export")
    assert run("rebase")["fresh"] == {"archive": 3, "messages": 3}
    assert run("export")["rows"] == {"archive": 3, "messages": 3}
    assert_same(place)


@pytest.mark.owner
def test_a_lake_that_lacks_a_run_of_its_database_is_refused_until_it_is_rebased(
    place: Place, tmp_path: Path
) -> None:
    """A lake that was deleted or is not mounted is refused, as it would lack rows of its runs."""
    if not isinstance(place, Path):
        pytest.skip("an object store has no directories")
    consumer = ConsumerFactory.create()
    settled(consumer, 2)
    run("export")
    place.rename(tmp_path / "unmounted")
    settled(consumer, 1)
    place.mkdir()
    for missing in ("archive", "messages"):
        with pytest.raises(CommandError, match=f"lacks rows of {missing} that run .*lake rebase"):
            run("export")
        assert not (place / missing).exists()
        (tmp_path / "unmounted" / missing).rename(place / missing)
    assert run("export")["rows"] == {"archive": 1, "messages": 1}
    assert_same(place)
    shutil.rmtree(place)
    assert run("rebase")["fresh"] == {"archive": 3, "messages": 3}
    assert run("export")["rows"] == {"archive": 3, "messages": 3}
    assert_same(place)


@pytest.mark.owner
def test_a_rebase_of_another_lake_exports_no_row_twice(place: Place, tmp_path: Path) -> None:
    """A rebase under a wrong LAKE and a later one of the right lake export no row twice."""
    settled(ConsumerFactory.create(), 2)
    run("export")
    with lake_at(tmp_path / "wrong"):
        assert run("rebase")["fresh"] == {"archive": 2, "messages": 2}
        run("export")
    with pytest.raises(CommandError, match=r"of another lake, at .*wrong.*`pulljobs lake rebase`"):
        run("export")
    settled(ConsumerFactory.create())
    assert run("rebase")["fresh"] == {"archive": 1, "messages": 1}
    assert run("export")["rows"] == {"archive": 1, "messages": 1}
    assert_same(place)
    with lake_at(tmp_path / "wrong") as wrong:
        run("rebase")
        run("export")
        assert_same(wrong)
    run("rebase")
    run("export")
    assert_same(place)
    with lake_at(tmp_path / "wrong"):
        assert run("export")["runs"] == [], "the last rebase renumbered nothing"


@pytest.mark.owner
def test_rows_of_the_old_cluster_that_the_lake_has_not_go_with_the_next_run(place: Place) -> None:
    consumer = ConsumerFactory.create()
    settled(consumer, 2)
    run("export")
    settled(consumer, 3)
    query("UPDATE pulljobs_archived_job SET settled_xid = 10^9")
    query("UPDATE pulljobs_message SET published_xid = 10^9")
    query("UPDATE pulljobs_lake_run SET system_identifier = 1")
    assert run("rebase")["fresh"] == {"archive": 3, "messages": 3}
    run("export")
    assert_same(place)


@pytest.mark.owner
def test_an_open_transaction_that_holds_the_export_back_is_reported(place: Place) -> None:
    events: list[object] = []
    forget = telemetry.record_with(events.append)
    try:
        with other_session() as other:
            other.execute("SELECT pg_current_xact_id()")
            assert "process" in run("export", "--max-lag", "0")["held_back_by"]
            assert run("export", "--max-lag", "3600")["held_back_by"] == ""
    finally:
        forget()
    assert [type(event) for event in events] == [ExportHeldBack]


def test_slices_hold_every_id_once() -> None:
    ids = sorted(random.Random(1).sample(range(10**9), 1000))
    cuts = slices.Sample(ids, 1_000_000).cuts(4)
    assert len(cuts) == 5
    assert cuts == sorted(set(cuts))
    assert (cuts[0], cuts[-1]) == (0, slices.LAST_ID)
    assert slices.Sample([], 0).cuts(4) == [0, slices.LAST_ID]
    assert len(slices.Sample(ids, 60_000).cuts(4)) - 1 == 2
    assert len(slices.Sample(ids, 1_100_000).cuts(4)) - 1 == 8  # none of the four idles


def test_tasks_of_spark_write_the_same(
    place: Place, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An export by tasks of Spark writes several files, with equal rows and nothing temporary."""
    consumer = ConsumerFactory.create()
    settled(consumer, 300)
    monkeypatch.setattr(slices, "MIN_ROWS", 50)
    opened = partial(session.open_session, "test")
    wait_for_other_transactions()
    exported = exporting.export(ExportOptions(payload_cap=9), opened, always_spark=True)
    assert exported.rows == {"archive": 300, "messages": 300}
    assert len(files(place, "archive")) > 1
    named = {path.rpartition("/")[2] for path in files(place, "archive")}
    assert {path.name for path in place.glob("archive/day=*/*")} == named
    assert_same(place)
