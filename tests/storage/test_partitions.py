"""Days of messages and history come and go while others publish."""

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from django.core.management import call_command
from django.db import OperationalError, connection, transaction
from django.test import override_settings

from pulljobs import ids, operating
from pulljobs.engine import outcomes
from pulljobs.models import Job, Message
from pulljobs.publishing import publish
from pulljobs.pulling import Puller
from pulljobs.storage import (
    jobs,
    partition_dropping,
    partition_locks,
    partition_making,
    partitions,
    sessions,
    statements,
)
from pulljobs.storage.partitions import Partition
from tests import second
from tests.days import no_days
from tests.factories import USING, ChannelFactory, ConsumerFactory, JobFactory, claimed, published
from tests.sessions import (
    PATIENCE_SECONDS,
    Thread,
    at_once,
    blocked_by,
    query,
    session,
    wait_until,
)

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.owner]

WAITING = (
    "SELECT count(DISTINCT pid) FROM pg_locks WHERE NOT granted AND database ="
    " (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture(autouse=True)
def _only_the_defaults() -> Iterator[None]:
    with no_days():
        yield


def today() -> date:
    """Return the current day: tests may run past midnight."""
    return datetime.now(UTC).date()


def where() -> list[str]:
    return [name for (name,) in query("SELECT tableoid::regclass::text FROM pulljobs_message")]


def publish_on(day: date) -> int:
    """Store a message without jobs, with an id of that day. Return the id."""
    [(id,)] = query(
        "INSERT INTO pulljobs_message"
        " (id, channel_id, published_at, priority, content_type, headers, payload)"
        " VALUES (%s, 1, now(), 0, '', '{}', '') RETURNING id",
        [Partition("pulljobs_message", day).bounds[0] + 5],
    )
    return int(id)


def test_days_are_made_ahead_once() -> None:
    made = list(partition_making.make_ahead(USING, 3))
    assert made == [
        Partition(table, today() + timedelta(days=ahead))
        for table in partitions.PARTITIONED
        for ahead in range(4)
    ]
    assert list(partition_making.make_ahead(USING, 3)) == []
    assert list(partition_making.make_ahead(USING, 4)) == [
        Partition(table, today() + timedelta(days=4)) for table in partitions.PARTITIONED
    ]


def test_no_vacuum_pauses_before_that_of_the_jobs() -> None:
    """No vacuum of jobs, leases, keys or history pauses, because one worker vacuums all in turn.

    A day of history, which has no dead rows, is vacuumed after a fixed number of new rows.
    """
    [*_] = partition_making.make_ahead(USING, 0)
    tables = [Partition(table, today()).name for table in partitions.PARTITIONED]
    for table in ("pulljobs_job", "pulljobs_lease", "pulljobs_exclusive_key", *tables):
        assert storage_of(table)["autovacuum_vacuum_cost_delay"] == "0", table
    for table in tables:
        assert storage_of(table)["autovacuum_vacuum_insert_scale_factor"] == "0"


def storage_of(table: str) -> dict[str, str]:
    text = "SELECT * FROM pg_options_to_table((SELECT reloptions FROM pg_class WHERE relname = %s))"
    return dict(query(text, [table]))


def test_a_day_takes_what_the_default_held() -> None:
    consumer = ConsumerFactory.create()
    published(consumer, 3)
    assert set(where()) == {"pulljobs_message_default"}
    list(partition_making.make_ahead(USING, 0))
    published(consumer, 2)
    assert where() == [f"pulljobs_message_{today():%Y%m%d}"] * 5
    claim = Puller(USING, consumer).claim(10)
    assert len(claim.jobs) == 5


def test_days_that_were_over_before_they_were_made_take_what_the_default_held() -> None:
    """The new partition of a past day takes the rows of that day out of the default partition."""
    days = [today() - timedelta(days=days) for days in (40, 3, 1)]
    late = [Partition("pulljobs_message", day) for day in days]
    for day in days:
        publish_on(day)
    JobFactory.create(state="DELIVERED")
    archive = Partition("pulljobs_archived_job", days[0])
    query("UPDATE pulljobs_archived_job SET id = %s", [archive.bounds[1] - 1])
    made = list(partition_making.make_ahead(USING, 0))
    assert [each for each in made if each.day != today()] == [*late, archive]
    assert {each.name for each in late} < set(where())
    assert query("SELECT count(*) FROM pulljobs_message_default") == [(0,)]
    assert query(f"SELECT count(*) FROM {archive.name}") == [(1,)]
    assert list(partition_making.make_ahead(USING, 0)) == []


@override_settings(PULLJOBS={"RETENTION": timedelta(days=30), "PARTITIONS_AHEAD": 1})
def test_upkeep_drops_old_days_that_no_partition_had() -> None:
    day = today() - timedelta(days=40)
    publish_on(day)
    assert operating.maintain().dropped == [Partition("pulljobs_message", day)]
    assert where() == []


def test_both_kinds_of_rows_go_to_their_day() -> None:
    list(partition_making.make_ahead(USING, 1))
    JobFactory.create(state="DELIVERED")
    assert query("SELECT tableoid::regclass::text FROM pulljobs_archived_job") == [
        (f"pulljobs_archived_job_{today():%Y%m%d}",)
    ]


def test_partitions_have_what_their_parent_has() -> None:
    """A partition has as many valid indexes, defaults and checks as its parent."""
    list(partition_making.make_ahead(USING, 0))
    for table in partitions.PARTITIONED:
        name = f"{table}_{today():%Y%m%d}"
        for what in (
            "SELECT count(*) FROM pg_index WHERE indrelid = %s::regclass AND indisvalid",
            "SELECT count(*) FROM pg_attrdef WHERE adrelid = %s::regclass",
            "SELECT count(*) FROM pg_constraint WHERE conrelid = %s::regclass AND contype = 'c'"
            " AND conname !~ '_id_check$'",
        ):
            assert query(what, [name]) == query(what, [table]), (table, what)


def test_somebody_holding_the_lock_shortly_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_locks, "LOCK_TIMEOUT", timedelta(milliseconds=50))
    monkeypatch.setattr(partition_locks, "PATIENCE", timedelta(days=1))
    with session() as other:
        other.execute("LOCK TABLE pulljobs_message_default IN ROW EXCLUSIVE MODE")
        making = Thread(lambda: list(partition_making.make_ahead(USING, 0)))
        wait_until(lambda: blocked_by(other))
        other.rollback()
        assert len(making.result()) == 2


def test_somebody_holding_the_lock_for_long_is_not_stood_in_the_way_of(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Making a partition fails if its lock is taken for long, and delays no publisher meanwhile."""
    monkeypatch.setattr(partition_locks, "LOCK_TIMEOUT", timedelta(milliseconds=20))
    monkeypatch.setattr(partition_locks, "PATIENCE", timedelta(milliseconds=200))
    channel = ChannelFactory.create()
    with session() as other:
        other.execute("LOCK TABLE pulljobs_message_default IN ROW EXCLUSIVE MODE")
        making, sent = Thread(lambda: list(partition_making.make_ahead(USING, 0))), 0
        while making.is_alive() or not sent:
            publish(channel.name, b"x")
            sent += 1
        with pytest.raises(OperationalError, match="lock timeout"):
            making.result()
    assert partitions.existing(USING, "pulljobs_message") == []
    assert Message.objects.count() == sent


@pytest.mark.parametrize("is_dropped", [True, False], ids=["drop", "make"])
def test_a_vacuum_is_waited_for_longer_and_delays_no_publisher(
    monkeypatch: pytest.MonkeyPatch, *, is_dropped: bool
) -> None:
    """Making or dropping a partition waits for a vacuum, and blocks no publisher meanwhile."""
    monkeypatch.setattr(partition_locks, "LOCK_TIMEOUT", timedelta(milliseconds=20))
    monkeypatch.setattr(partition_locks, "PATIENCE", timedelta(0))
    channel = ChannelFactory.create()
    old = old_day()
    table = old.name if is_dropped else "pulljobs_message_default"

    def drop() -> object:
        return partition_dropping.drop(USING, old)

    def make() -> object:
        return list(partition_making.make_ahead(USING, 0))

    with session() as other:
        # A vacuum's lock.
        other.execute(f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE")
        working = Thread(drop if is_dropped else make)
        wait_until(lambda: blocked_by(other))
        publish(channel.name, b"x")
        wait_until(lambda: not working.is_alive() or somebody_waits_longer())
        other.rollback()
        assert working.result()


def test_a_vacuum_that_goes_on_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A drop waits for a vacuum once and then fails, since the reaper must not wait long."""
    monkeypatch.setattr(partition_locks, "VACUUM_TIMEOUT", timedelta(milliseconds=200))
    monkeypatch.setattr(partition_locks, "PATIENCE", timedelta(milliseconds=100))
    caplog.set_level("INFO", "pulljobs.storage")
    old = old_day()
    with session() as other:
        other.execute(f"LOCK TABLE {old.name} IN SHARE UPDATE EXCLUSIVE MODE")
        with pytest.raises(OperationalError, match="lock timeout"):
            partition_dropping.drop(USING, old)
    assert "trying again" not in caplog.text


def somebody_waits_longer() -> bool:
    text = f"{WAITING} AND clock_timestamp() - waitstart > %s"
    [(count,)] = query(text, [5 * partition_locks.LOCK_TIMEOUT])
    return bool(count)


def test_a_vacuum_of_today_keeps_no_old_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition_locks, "VACUUM_TIMEOUT", timedelta(milliseconds=20))
    monkeypatch.setattr(partition_locks, "LOCK_TIMEOUT", timedelta(milliseconds=20))
    list(partition_making.make_ahead(USING, 0))
    old = old_day()
    with session() as other:
        other.execute(
            f"LOCK TABLE pulljobs_message_{today():%Y%m%d} IN SHARE UPDATE EXCLUSIVE MODE"
        )
        assert partition_dropping.drop(USING, old)


def test_several_who_make_the_same_days_at_once() -> None:
    made = at_once(4, lambda _number: list(partition_making.make_ahead(USING, 2)))
    assert sorted(each for some in made for each in some) == sorted(
        partitions.existing(USING, "pulljobs_message")
        + partitions.existing(USING, "pulljobs_archived_job")
    )
    assert len(partitions.existing(USING, "pulljobs_message")) == 3


def old_day(days: int = 40) -> Partition:
    """Make the partition of the day `days` days ago, with one message that no job needs."""
    day = today() - timedelta(days=days)
    publish_on(day)
    partition = Partition("pulljobs_message", day)
    assert partition_making._make(USING, partition)
    return partition


def test_old_days_go_and_the_others_stay() -> None:
    list(partition_making.make_ahead(USING, 1))
    old = old_day()
    young = old_day(29)
    assert list(partition_dropping.drop_before(USING, timedelta(days=30))) == [old]
    assert old not in partitions.existing(USING, "pulljobs_message")
    assert young in partitions.existing(USING, "pulljobs_message")
    assert where() == [young.name]


def test_several_who_drop_the_same_days_at_once() -> None:
    """Each old day is dropped once, and no process fails, if several processes drop them."""
    old = [old_day(days) for days in range(40, 50)]
    dropped = at_once(
        4, lambda _number: list(partition_dropping.drop_before(USING, timedelta(days=30)))
    )
    assert sorted(each for some in dropped for each in some) == sorted(old)
    assert partitions.existing(USING, "pulljobs_message") == []


def test_a_day_is_old_when_all_of_it_is() -> None:
    yesterday = old_day(1)
    assert list(partition_dropping.drop_before(USING, timedelta(days=1))) == []
    assert list(partition_dropping.drop_before(USING, timedelta(0))) == [yesterday]


@pytest.mark.parametrize("state", ["QUEUED", "INFLIGHT", "DEAD"])
def test_a_day_that_a_live_job_needs_stays(state: str) -> None:
    job = JobFactory.create(state=state)
    old = old_day()
    query("UPDATE pulljobs_job SET message_id = %s", [old.bounds[0] + 5])
    assert list(partition_dropping.drop_before(USING, timedelta(days=30))) == []
    assert where().count(old.name) == 1
    if state == "DEAD":
        jobs.delete(USING, [job.id])
        assert list(partition_dropping.drop_before(USING, timedelta(days=30))) == [old]


def test_a_job_that_turns_up_while_a_day_is_dropped_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A day is kept if a job that needs one of its messages commits during the drop."""
    monkeypatch.setattr(partition_locks, "PATIENCE", timedelta(days=1))
    consumer = ConsumerFactory.create()
    old = old_day()
    with session() as other:
        other.execute(
            "INSERT INTO pulljobs_job"
            " (consumer_id, message_id, state, retry_count, deliveries, priority, available_at)"
            " SELECT %s, id, 'QUEUED', 0, 0, 0, now() FROM pulljobs_message WHERE id = %s",
            [consumer.pk, old.bounds[0] + 5],
        )
        dropping = Thread(lambda: list(partition_dropping.drop_before(USING, timedelta(days=30))))
        wait_until(lambda: blocked_by(other))
        other.commit()
        assert dropping.result() == []
    assert len(Puller(USING, consumer).claim(1).jobs) == 1


def test_a_row_that_turns_up_while_a_day_is_dropped_keeps_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A day is kept if a transaction has written a row to it since it was copied elsewhere."""
    monkeypatch.setattr(partition_locks, "PATIENCE", timedelta(days=1))
    old = old_day()
    with session() as other:
        [(high_xid,)] = query("SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
        other.execute(
            "INSERT INTO pulljobs_message"
            " (id, channel_id, published_at, priority, content_type, headers, payload)"
            " VALUES (%s, 1, now(), 0, '', '{}', '')",
            [old.bounds[0] + 6],
        )
        dropping = Thread(lambda: partition_dropping.drop(USING, old, high_xid))
        wait_until(lambda: blocked_by(other))
        other.commit()
        assert not dropping.result()
    assert where() == [old.name] * 2


@pytest.mark.parametrize("table", partitions.PARTITIONED)
@pytest.mark.parametrize("dedicated", [True, False], ids=["worker", "command"])
def test_writes_to_a_day_are_found_by_block_ranges(table: str, *, dedicated: bool) -> None:
    """A drop finds new rows of a day by a BRIN index, because other sessions wait for its check."""
    day = Partition(table, today() - timedelta(days=40))
    assert partition_making._make(USING, day)
    plans: list[str] = []

    def explained(execute: Any, text: Any, params: Any, many: bool, context: Any) -> Any:
        if "xid" in str(text):
            execute(f"EXPLAIN {text.as_string()}", params, many, context)
            plans.append("\n".join(line for (line,) in context["cursor"].fetchall()))
        return execute(text, params, many, context)

    def drop() -> bool:
        if dedicated:
            sessions.dedicate(USING)
            statements.run(USING, "server", {})
        with connection.execute_wrapper(explained):
            return partition_dropping.drop(USING, day, 2**40)

    assert Thread(drop).result()
    assert len(plans) == 2
    for plan in plans:
        assert "Bitmap Index Scan" in plan
        assert "Seq Scan" not in plan


def test_publishes_while_days_are_made_and_dropped_lose_nothing() -> None:
    consumer = ConsumerFactory.create()
    for days in range(31, 36):
        old_day(days)

    def work(number: int) -> int:
        if number == 0:
            list(partition_making.make_ahead(USING, 2))
            return len(list(partition_dropping.drop_before(USING, timedelta(days=30))))
        return len([publish(consumer.channel.name, b"x") for _ in range(100)])

    assert at_once(4, work) == [5, 100, 100, 100]
    assert Message.objects.count() == Job.objects.count() == 300
    assert len(Puller(USING, consumer).claim(500).jobs) == 300


def test_a_publish_that_waits_while_its_day_is_attached_goes_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(partition_locks, "LOCK_TIMEOUT", timedelta(seconds=PATIENCE_SECONDS))
    channel = ChannelFactory.create()
    with session() as other:
        other.execute("LOCK TABLE pulljobs_message_default IN ROW EXCLUSIVE MODE")
        making = Thread(lambda: list(partition_making.make_ahead(USING, 0)))
        wait_until(lambda: waiting_sessions() == 1)
        publishing = Thread(lambda: publish(channel.name, b"x"))
        wait_until(lambda: waiting_sessions() == 2)
        other.rollback()
        assert len(making.result()) == 2
        publishing.result()
    assert where() == [f"pulljobs_message_{today():%Y%m%d}"]


def waiting_sessions() -> int:
    [(count,)] = query(WAITING)
    return int(count)


def test_the_archive_goes_by_days_too() -> None:
    JobFactory.create(state="DELIVERED")
    old = Partition("pulljobs_archived_job", today() - timedelta(days=40))
    query("UPDATE pulljobs_archived_job SET id = %s", [old.bounds[0]])
    assert partition_making._make(USING, old)
    assert list(partition_dropping.drop_before(USING, timedelta(days=30))) == [old]
    assert query("SELECT count(*) FROM pulljobs_archived_job") == [(0,)]


def test_upkeep_makes_days_and_keeps_everything_by_default() -> None:
    old = old_day()
    upkeep = operating.maintain()
    assert len(upkeep.made) == 2 * 8
    assert upkeep.dropped == []
    assert old in partitions.existing(USING, "pulljobs_message")


@override_settings(PULLJOBS={"RETENTION": timedelta(days=30), "PARTITIONS_AHEAD": 1})
def test_upkeep_drops_what_the_retention_says() -> None:
    old = old_day()
    channel = ChannelFactory.create()
    publish(channel.name, b"x", message_id="old")
    query("UPDATE pulljobs_publication SET published_at = now() - interval '31 days'")
    publish(channel.name, b"x", message_id="new")
    upkeep = operating.maintain()
    assert (len(upkeep.made), upkeep.dropped) == (4, [old])
    assert query("SELECT client_message_id FROM pulljobs_publication") == [("new",)]


def test_bounds_are_the_days_own() -> None:
    partition = Partition("pulljobs_message", date(2026, 3, 1))
    low, high = partition.bounds
    assert ids.time_of(low) == datetime(2026, 3, 1, tzinfo=UTC)
    assert ids.time_of(high - 1) < datetime(2026, 3, 2, tzinfo=UTC) == ids.time_of(high)


def tables() -> list[tuple[Any, ...]]:
    return query(
        "SELECT relname, relkind FROM pg_class WHERE relname LIKE 'pulljobs%%'"
        " AND relname !~ '_[0-9]{8}|^pulljobs_staged_' ORDER BY 1"
    )


def test_migrations_go_back_to_nothing_and_forth_again() -> None:
    before = tables()
    list(partition_making.make_ahead(USING, 1))
    JobFactory.create(state="DELIVERED")
    try:
        call_command("migrate", "pulljobs", "zero", verbosity=0, database=USING)
        assert tables() == []
    finally:
        # All apps: the lake's tables went with those that they refer to.
        call_command("migrate", verbosity=0, database=USING)
        second.grant()
    assert tables() == before
    consumer = ConsumerFactory.create()
    published(consumer)
    jobs.finish(USING, [outcomes.deliver(held) for held in claimed(consumer)])


def test_models_and_migrations_agree() -> None:
    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
    assert not connection.in_atomic_block
    assert transaction.get_autocommit()
