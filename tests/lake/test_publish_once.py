"""A bulk publish publishes each row once, whatever fails, is repeated or is killed."""

import subprocess
from typing import Any

import pyarrow as pa
import pytest

from pulljobs.errors import ConfigurationError, LakeError
from pulljobs.lake.models import BulkPublish
from pulljobs.models import Job, Message
from pyspark_pulljobs import drivers, publish_ledger, staging
from tests.factories import ConsumerFactory
from tests.lake import bulk
from tests.lake.bulk import WAYS, batch
from tests.sessions import Thread, blocked_by, query, run, session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
modes = pytest.mark.parametrize("mode", WAYS)


def numbered(first: int, count: int) -> list[Any]:
    return [batch(*({"payload": str(n).encode()} for n in range(first, first + count)))]


def payloads() -> list[int]:
    return sorted(int(bytes(row.payload)) for row in Message.objects.all())


def tables() -> list[str]:
    return [
        row[0]
        for row in query("SELECT relname FROM pg_class WHERE relname ~ '^pulljobs_staged_[0-9]+$'")
    ]


def forget_patience() -> None:
    query("UPDATE pulljobs_bulk_publish SET touched_at = touched_at - interval '1 hour'")


@modes
def test_a_task_that_runs_twice_counts_once(mode: str) -> None:
    """The rows of a task are published once, although a lost attempt wrote them before."""
    consumer = ConsumerFactory.create()
    writer = bulk.writer(consumer.channel, mode=mode)
    writer.write(iter(numbered(0, 5)))  # its message is lost
    writer.commit([writer.write(iter(numbered(0, 5)))])
    assert payloads() == list(range(5))
    assert Job.objects.count() == 5


@modes
def test_a_publish_that_is_repeated_does_nothing(mode: str) -> None:
    consumer = ConsumerFactory.create()
    for _time in range(2):
        bulk.publish(consumer.channel, numbered(0, 5), mode=mode, publishId="daily")
    assert payloads() == list(range(5))
    assert BulkPublish.objects.get().messages == 5
    assert tables() == []


def test_a_driver_that_commits_twice_publishes_once() -> None:
    """A Spark driver can repeat a commit, for example without an answer, and publishes once."""
    consumer = ConsumerFactory.create()
    writer = bulk.writer(consumer.channel)
    messages = [writer.write(iter(numbered(0, 5)))]
    writer.commit(messages)
    writer.commit(messages)
    assert payloads() == list(range(5))


def test_nothing_is_visible_before_the_commit_nor_after_an_abort() -> None:
    consumer = ConsumerFactory.create()
    writer = bulk.writer(consumer.channel)
    messages = [writer.write(iter(numbered(0, 5)))]
    assert Message.objects.count() == Job.objects.count() == 0
    writer.abort(messages)
    assert Message.objects.count() == 0
    assert BulkPublish.objects.get().state == "aborted"
    assert tables() == []


def test_an_aborted_publish_may_be_run_again() -> None:
    consumer = ConsumerFactory.create()
    bulk.writer(consumer.channel, publishId="daily").abort([])
    bulk.publish(consumer.channel, numbered(0, 5), publishId="daily")
    assert payloads() == list(range(5))


def test_a_killed_publish_is_taken_up_by_its_id() -> None:
    """A publish with the id of a killed one publishes its own rows only, and drops those staged."""
    consumer = ConsumerFactory.create()
    bulk.writer(consumer.channel, publishId="daily").write(iter(numbered(100, 3)))
    bulk.let_go()
    bulk.publish(consumer.channel, numbered(0, 5), publishId="daily")
    assert payloads() == list(range(5))
    assert tables() == []


def test_a_driver_that_is_gone_is_seen_on_its_host() -> None:
    consumer = ConsumerFactory.create()
    bulk.writer(consumer.channel).write(iter(numbered(0, 3)))
    assert drivers.find_dead([drivers.identify_driver()]) == []
    ended = subprocess.Popen(["true"])
    ended.wait()
    query(
        "UPDATE pulljobs_bulk_publish SET driver = regexp_replace(driver, '[0-9]+$', %s)",
        [str(ended.pid)],
    )
    bulk.let_go()
    bulk.publish(consumer.channel, numbered(5, 1))
    assert tables() == []
    assert payloads() == [5]


@pytest.mark.parametrize("guarded", ["true", "false"])
def test_the_next_publish_drops_what_a_killed_one_left(guarded: str) -> None:
    """A publish drops what a killed one has staged, or ten minutes later if that held no lock."""
    consumer = ConsumerFactory.create()
    bulk.writer(consumer.channel, guarded=guarded).write(iter(numbered(0, 3)))
    assert len(tables()) == 1
    bulk.let_go()
    if guarded == "false":
        bulk.publish(consumer.channel, numbered(5, 1))
        assert len(tables()) == 1
        forget_patience()
        bulk.let_go()
    bulk.publish(consumer.channel, numbered(6, 1))
    assert tables() == []
    assert set(BulkPublish.objects.values_list("state", flat=True)) == {"aborted", "done"}


def test_a_publish_at_work_is_left_alone() -> None:
    consumer = ConsumerFactory.create()
    writer = bulk.writer(consumer.channel, publishId="slow", guarded="true")
    publish = BulkPublish.objects.get()
    with bulk.direct() as driver:
        publish_ledger.hold(driver, publish.pk)
        messages = [writer.write(iter(numbered(0, 3)))]
        forget_patience()
        bulk.publish(consumer.channel, numbered(5, 1))
        assert len(tables()) == 1
    writer.commit(messages)
    assert payloads() == [0, 1, 2, 5]


def test_a_table_in_use_is_dropped_later() -> None:
    consumer = ConsumerFactory.create()
    writer = bulk.writer(consumer.channel)
    messages = [writer.write(iter(numbered(0, 3)))]
    with session() as zombie:
        zombie.execute(f"SELECT FROM {tables()[0]}")
        writer.commit(messages)
        assert len(tables()) == 1
    assert payloads() == [0, 1, 2]
    bulk.let_go()
    bulk.publish(consumer.channel, numbered(5, 1))
    assert tables() == []


def test_a_task_that_comes_too_late_is_refused() -> None:
    consumer = ConsumerFactory.create()
    writer = bulk.writer(consumer.channel)
    writer.commit([writer.write(iter(numbered(0, 3)))])
    with pytest.raises(LakeError, match="run it again"):
        writer.write(iter(numbered(0, 3)))


@pytest.mark.parametrize("options", [{"mode": "chunked"}, {"consumer": "second"}])
def test_an_id_is_of_one_publish(options: dict[str, str]) -> None:
    """A publishId cannot be used again with another mode or consumer."""
    consumer = ConsumerFactory.create()
    ConsumerFactory.create(channel=consumer.channel, name="second")
    bulk.publish(consumer.channel, numbered(0, 5), publishId="daily")
    with pytest.raises(ConfigurationError, match="another publishId"):
        bulk.publish(consumer.channel, numbered(0, 5), publishId="daily", **options)


class TestChunked:
    def test_a_run_that_was_cut_off_goes_on(self) -> None:
        consumer = ConsumerFactory.create()
        bulk.writer(consumer.channel, mode="chunked", publishId="1").write(iter(numbered(0, 5)))
        bulk.publish(consumer.channel, numbered(0, 5), mode="chunked", publishId="1")
        assert payloads() == list(range(5))
        assert BulkPublish.objects.get().messages == 5

    def test_a_task_whose_rows_were_cut_off_goes_on_behind_them(self) -> None:
        """A new attempt continues after the rows that are published, and refuses other rows."""
        consumer = ConsumerFactory.create()
        writer = bulk.writer(consumer.channel, mode="chunked")
        whole = [*numbered(0, 3), *numbered(3, 4), *numbered(7, 2)]
        for rows in (0, 3, 4, 4, 9):
            writer.write(iter(pa.Table.from_batches(whole).slice(0, rows).to_batches()))
        with pytest.raises(LakeError, match="other rows"):
            writer.write(iter(numbered(0, 8)))
        writer.commit([writer.write(iter(whole))])
        assert payloads() == list(range(9))
        done = BulkPublish.objects.get()
        assert (done.rows, done.messages, done.jobs) == (9, 9, 9)

    def test_other_rows_under_the_same_number_are_refused(self) -> None:
        """A repeated task must bring the rows that it published before."""
        consumer = ConsumerFactory.create()
        bulk.writer(consumer.channel, mode="chunked", publishId="1").write(iter(numbered(0, 5)))
        with pytest.raises(LakeError, match="other rows"):
            bulk.publish(consumer.channel, numbered(1, 5), mode="chunked", publishId="1")

    def test_two_attempts_at_a_time_take_turns(self) -> None:
        """If Spark runs two attempts of a task at a time, one waits until the other has ended."""
        consumer = ConsumerFactory.create()
        writer = bulk.writer(consumer.channel, mode="chunked")
        publish = BulkPublish.objects.get()
        with session() as first:
            run(first, "begin_part", {"publish_id": publish.pk, "partition": 0})
            second = Thread(lambda: writer.write(iter(numbered(0, 5))))
            wait_until(lambda: blocked_by(first))
            first.rollback()
        second.result()
        assert payloads() == list(range(5))


def test_a_conflict_over_locks_is_tried_again() -> None:
    """A bulk publish that deadlocks with another publish of the same client ids is tried again."""
    consumer = ConsumerFactory.create()
    ids = [str(n) for n in range(2)]
    writer = bulk.writer(consumer.channel)
    rows = [writer.write(iter([batch({"message_id": id})])) for id in ids]
    with session() as other:
        other.execute("SET LOCAL deadlock_timeout = '1min'")
        take(other, consumer.channel_id, ids[1])
        committing = Thread(lambda: writer.commit(rows))
        wait_until(lambda: blocked_by(other))
        take(other, consumer.channel_id, ids[0])
        other.commit()
    committing.result()
    done = BulkPublish.objects.get()
    assert (done.messages, done.duplicates) == (0, 2)


def take(other: Any, channel_id: int, client_id: str) -> None:
    other.execute(
        "INSERT INTO pulljobs_publication (channel_id, client_message_id, message_id, published_at)"
        " VALUES (%s, %s, 1, now())",
        [channel_id, client_id],
    )


def test_staged_rows_are_not_logged() -> None:
    """The table of staged rows is UNLOGGED. A crash of the server empties it."""
    writer = bulk.writer(ConsumerFactory.create().channel)
    [(persistence,)] = query("SELECT relpersistence FROM pg_class WHERE relname = %s", tables())
    assert persistence == "u"
    writer.abort([])


@modes
def test_nothing_to_publish_is_done_too(mode: str) -> None:
    """A publish without rows or tasks ends as done."""
    consumer = ConsumerFactory.create()
    bulk.publish(consumer.channel, mode=mode)
    bulk.publish(consumer.channel, [], mode=mode)
    assert list(BulkPublish.objects.values_list("state", "rows")) == [("done", 0)] * 2
    assert tables() == []


def test_what_a_crash_of_the_server_took_is_not_passed_over() -> None:
    """A commit fails and publishes nothing if staged rows were lost in a crash of the server."""
    consumer = ConsumerFactory.create()
    writer = bulk.writer(consumer.channel)
    messages = [writer.write(iter(numbered(0, 3)))]
    query(f"TRUNCATE {tables()[0]}")
    with pytest.raises(LakeError, match="The database has 0 of 3 staged rows"):
        writer.commit(messages)
    assert Message.objects.count() == 0


@pytest.mark.owner
def test_a_role_that_may_create_no_table_is_refused() -> None:
    query("CREATE ROLE pulljobs_poor; GRANT USAGE ON SCHEMA public TO pulljobs_poor")
    try:
        with bulk.direct() as poor:
            poor.connection.execute("SET ROLE pulljobs_poor")
            with pytest.raises(ConfigurationError, match="mode chunked"):
                staging.create(poor, 1)
    finally:
        query("DROP OWNED BY pulljobs_poor; DROP ROLE pulljobs_poor")
