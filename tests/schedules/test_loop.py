"""Tests of the loop that fires schedules: in worker processes, and its cost if none is due.

`tests/benchmarks/test_schedules.py` kills workers and the server.
"""

import json
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from threading import Event

import pytest
from django.db import connections, transaction

from pulljobs import schedules
from pulljobs.engine.sql import statement
from pulljobs.errors import ConfigurationError
from pulljobs.schedules import declaring, editing
from pulljobs.schedules.editing import WAKE_CHANNEL
from pulljobs.schedules.loop import LONGEST_SLEEP, ScheduleLoop
from pulljobs.schedules.models import Schedule, Slot
from pulljobs.schedules.verifying import verify
from pulljobs.storage.sessions import PLAN_FOR_QUEUES
from pulljobs.worker.listener import WakeupListener
from tests.factories import USING
from tests.schedules.conftest import Make, make_due, reasons, reread
from tests.sessions import SLACK, Thread, query, session, wait_until
from tests.worker.processes import Stage

SECOND = timedelta(seconds=1)
APPS = {"WORKER_APPS": "tests.worker.app pulljobs.schedules"}


@pytest.fixture
def stage(transactional_db: None, tmp_path: Path) -> Iterator[Stage]:
    stage = Stage(tmp_path)
    try:
        yield stage
    finally:
        stage.end()


def count_fired() -> int:
    return Slot.objects.filter(message_id__isnull=False).count()


@pytest.mark.processes
@pytest.mark.slow
def test_a_worker_wakes_for_a_new_schedule_and_fires_its_slots_in_time(stage: Stage) -> None:
    stage.consumer()
    worker = stage.worker(**APPS).ready()
    first = schedules.create("first", "script", {}, every=SECOND)
    wait_until(lambda: count_fired() >= 4)
    assert worker.stop() == 0
    records = list(Slot.objects.order_by("slot_at"))
    assert first.next_slot is not None
    expected = [first.next_slot + number * SECOND for number in range(len(records))]
    assert [record.slot_at for record in records] == expected
    assert {record.reason for record in records} <= {"due", "missed"}
    fired = [record for record in records if record.message_id is not None]
    assert [record for record in fired if not 0 <= record.late_seconds < 0.1 + SLACK] == []
    assert verify().broken == {}
    assert len(stage.history("started")) >= 1


@pytest.mark.processes
@pytest.mark.slow
@pytest.mark.own_session
def test_an_idle_worker_asks_about_schedules_at_most_once_in_ten_seconds(stage: Stage) -> None:
    stage.consumer()
    schedules.create("hourly", "script", {}, every=timedelta(hours=1))
    worker = stage.worker(**APPS).ready()
    starts: list[float] = []
    # The listener wakes the loop once when it begins, and then only time does.
    wait_until(lambda: last_gap(starts) > LONGEST_SLEEP / 2)
    assert last_gap(starts) > 0.95 * LONGEST_SLEEP
    assert worker.stop() == 0


def last_gap(starts: list[float]) -> float:
    """Return the seconds between the last two statements of the loop, or 0 before there are two.

    The server shows the last statement of each session. `starts` collects their times.
    """
    rows = query(
        "SELECT extract(epoch FROM query_start)::float8 FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        " AND query LIKE %s",
        ["%FROM pulljobs_schedule%"],
    )
    starts += [start for (start,) in rows if start not in starts]
    return starts[-1] - starts[-2] if len(starts) > 1 else 0.0


@pytest.mark.django_db(transaction=True)
def test_a_loop_without_due_schedules_runs_one_statement_in_ten_seconds() -> None:
    assert Thread(measure_idle_loop).result() == (True, True)


def measure_idle_loop() -> tuple[bool, bool]:
    """Return True if the first pass sleeps long, and True if the second opens no connection."""
    loop = ScheduleLoop()
    sleeps_long = loop.tick() > LONGEST_SLEEP / 2
    connections[USING].close()
    loop.tick()
    return sleeps_long, connections[USING].connection is None


@pytest.mark.django_db(transaction=True)
def test_a_loop_that_is_woken_looks_at_once(make: Make) -> None:
    loop = ScheduleLoop()
    assert loop.tick() > LONGEST_SLEEP / 2
    row = make()
    make_due(row)
    assert loop.tick() > 0
    assert reasons(row) == []
    loop.wake()
    loop.tick()
    assert reasons(row) == ["due"]
    assert reread(row).failures == 0


@pytest.mark.django_db(transaction=True)
@pytest.mark.own_session
def test_a_loop_sleeps_while_another_session_has_the_due_row_locked(make: Make) -> None:
    row, loop = make(), ScheduleLoop()
    make_due(row)
    with session() as other:
        other.execute("SELECT FROM pulljobs_schedule FOR UPDATE")
        assert loop.tick() > 0
        assert reasons(row) == []
    wait_until(lambda: loop.tick() >= 0 and reasons(row)[:1] == ["due"])


@pytest.mark.django_db(transaction=True)
def test_a_declaration_that_no_worker_can_create_stops_no_firing(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise ConfigurationError("It can't be created.")

    monkeypatch.setattr(declaring, "sync", refuse)
    row = make()
    make_due(row)
    with pytest.raises(ConfigurationError):
        ScheduleLoop().tick()
    assert reasons(row)[0] == "due"


@pytest.mark.django_db(transaction=True)
@pytest.mark.own_session
def test_only_a_row_that_is_due_soon_wakes_the_loops(make: Make) -> None:
    with session() as other:
        other.autocommit = True
        other.execute("LISTEN pulljobs_schedules")
        make("hourly", every=timedelta(hours=1))
        assert list(other.notifies(timeout=0.2, stop_after=1)) == []
        make("often", every=SECOND)
        assert len(list(other.notifies(timeout=5 + SLACK, stop_after=1))) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.own_session
def test_a_row_that_is_due_soon_when_its_transaction_ends_wakes_the_loops(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    with session() as other:
        other.autocommit = True
        other.execute("LISTEN pulljobs_schedules")
        with transaction.atomic(using=USING):
            make(every=timedelta(hours=1))
            later = time.monotonic() + 3590
            monkeypatch.setattr(editing, "monotonic", lambda: later)
        assert len(list(other.notifies(timeout=5 + SLACK, stop_after=1))) == 1


@pytest.mark.django_db(transaction=True)
@pytest.mark.own_session
def test_the_listener_of_a_worker_wakes_the_loop_of_another_app(make: Make) -> None:
    woken = Event()
    listener = WakeupListener(USING, lambda ids: None, lambda ids: None, {WAKE_CHANNEL: woken.set})
    try:
        listener.tick()
        assert woken.is_set()  # Rows may have changed before it listened.
        woken.clear()
        make(every=SECOND)
        wait_until(lambda: listener.tick() == 0 and woken.is_set())
    finally:
        assert listener._listener is not None
        listener._listener.close()


@pytest.mark.django_db
def test_a_pass_costs_the_same_with_a_hundred_thousand_schedules_that_are_not_due(
    make: Make,
) -> None:
    make("first")
    fill(1_000)
    few = pages_read()
    fill(100_000)
    assert pages_read() <= few + 5
    assert pages_read("next_due") <= few + 5


def fill(count: int) -> None:
    """Add `count` copies of the schedule "first", of which ten are due."""
    columns = [
        str(field.column)
        for field in Schedule._meta.concrete_fields
        if field.column not in ("id", "name", "due_at")
    ]
    names = ", ".join(columns)
    query("UPDATE pulljobs_schedule SET due_at = now() + interval '1 day'")
    query(
        f"INSERT INTO pulljobs_schedule (name, due_at, {names})"
        f" SELECT 'copy-{count}-' || n, now() + CASE WHEN n <= 10 THEN -1 ELSE n END"
        f" * interval '1 s', {names} FROM pulljobs_schedule, generate_series(1, %s) AS n"
        " WHERE name = 'first'",
        [count],
    )


def pages_read(name: str = "due_schedules") -> int:
    """Return how many pages a statement reads, planned as on a worker's connection."""
    query(PLAN_FOR_QUEUES)
    try:
        text = statement(name).replace("%(wanted)s", "200")
        [(plan,)] = query(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}")
    finally:
        query("RESET enable_seqscan; RESET enable_bitmapscan; RESET plan_cache_mode; RESET jit")
    plans = plan if isinstance(plan, list) else json.loads(plan)
    return int(plans[0]["Plan"]["Shared Hit Blocks"] + plans[0]["Plan"]["Shared Read Blocks"])
