"""Bulk publishes through Spark: tasks that fail and run twice, drivers that are killed, files."""

import os
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from django.core.management import CommandError, call_command
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pulljobs.lake.models import BulkPublish, RejectedRow
from pulljobs.lake.spark.failures import summarize_error
from pulljobs.lake.spark.session import dsn
from pulljobs.models import Consumer, Job, Message
from tests.factories import ConsumerFactory
from tests.lake import bulk, driving
from tests.lake.bulk import WAYS
from tests.lake.driver import failing
from tests.lake.driving import PATIENCE_SECONDS
from tests.sessions import blocked_by, query, session, wait_until

pytestmark = pytest.mark.django_db(transaction=True)
JOBS = int(os.environ.get("PULLJOBS_TEST_JOBS", 3_000))
"""Number of jobs that are published. The full test has PULLJOBS_TEST_JOBS=1000000."""
STAGED = "SELECT relname FROM pg_class WHERE relname ~ '^pulljobs_staged_[0-9]+$'"
modes = pytest.mark.parametrize("mode", WAYS)
WRITTEN = '{"n": 1.50, "big": 12345678901234567890.10, "a":null , "u": "\\u00fc", "A": [1, 1e400]}'
ALL_COLUMNS = {
    ".jsonl": r"""{"payload": "one\r\n\"two\\", "key": "a", "priority": 3, "message_id": 7,
 "headers": {"h": "v"}, "content_type": "text/x", "delay": 1.5,
 "available_at": "2100-01-01T00:00:00Z", "cost": 2}""".replace("\n", ""),
    ".csv": "payload,key,priority,message_id,headers,content_type,delay,available_at,cost\n"
    '"one\r\n""two\\",a,3,7,"{""h"": ""v""}",text/x,1.5,2100-01-01T00:00:00Z,2\n',
}
NO_ROWS = {
    ".jsonl": ("", '{"payload": {}}', '{"payload": "secret"', '"secret"', "{'payload': 1}"),
    ".csv": ("payload,key,priority", "x,a,1", "secret,a", "secret,a,1,more"),
}
"""Head of a file, a good row and bad rows, for each suffix."""
NO_VALUES = {
    ".jsonl": (
        '{"payload": "secret", "priority": 1.5}',
        '{"payload": "secret", "delay": "x"}',
        '{"payload": "secret", "available_at": "soon"}',
    ),
    ".csv": ("secret,a,soon",),
}


def numbers(spark: SparkSession, count: int, *, tasks: int = 2) -> DataFrame:
    return spark.range(0, count, 1, tasks).selectExpr("cast(id AS string) AS payload")


def write(df: DataFrame, channel: str, **options: object) -> None:
    writing = df.write.format("pulljobs").mode("append")
    writing.options(dsn=dsn(), channel=channel, **options).save()  # type: ignore[arg-type]  # texts


def exactly(count: int, consumer: Consumer) -> bool:
    """Return True if each number below `count` is the payload of one message with one job."""
    [counts] = query(
        "SELECT count(*), count(DISTINCT convert_from(payload, 'UTF8')::bigint),"
        " max(convert_from(payload, 'UTF8')::bigint), count(DISTINCT job.id)"
        " FROM pulljobs_message AS message JOIN pulljobs_job AS job ON message_id = message.id"
        " WHERE consumer_id = %s",
        [consumer.pk],
    )
    return counts == (count, count, count - 1, count)


@modes
def test_every_row_becomes_a_message_once(spark: SparkSession, mode: str) -> None:
    consumer = ConsumerFactory.create()
    for _time in range(2):
        write(numbers(spark, 1000), consumer.channel.name, publishId="1", mode=mode)
    assert exactly(1000, consumer)
    done = BulkPublish.objects.get()
    assert (done.state, done.rows, done.messages, done.jobs) == ("done", 1000, 1000, 1000)


def test_columns_of_spark(spark: SparkSession) -> None:
    """Columns of Spark's types become the fields of the message and its job."""
    consumer = ConsumerFactory.create(exclusive_keys=True)
    row = spark.sql(
        "SELECT binary('x') AS payload, 'a' AS key, 3S AS priority, map('h', 'v') AS headers,"
        " interval '1' hour AS delay, timestamp'2100-01-01 00:00:00Z' AS available_at"
    )
    write(row, consumer.channel.name)
    message, job = Message.objects.get(), Job.objects.get()
    assert (bytes(message.payload), message.key, message.priority) == (b"x", "a", 3)
    assert message.headers == {"h": "v"}
    assert job.available_at is not None
    assert job.available_at.isoformat() == "2100-01-01T01:00:00+00:00"


def test_bad_rows_are_reported_in_one_line(spark: SparkSession) -> None:
    consumer = ConsumerFactory.create()
    rows = spark.range(10).selectExpr("'x' AS payload", "if(id = 7, 40000, 0) AS priority")
    with pytest.raises(PySparkException) as failed:
        write(rows, consumer.channel.name)
    error = summarize_error(failed.value)
    assert error.startswith("1 rows can't be published, so nothing was published")
    assert "priority must be a whole number" in error
    assert Message.objects.count() == 0
    write(rows, consumer.channel.name, onBadRow="reject")
    assert (Message.objects.count(), RejectedRow.objects.count()) == (9, 1)


def test_tasks_that_fail_and_runs_that_are_repeated(spark: SparkSession) -> None:
    """Each row is published once, in every mode, although tasks fail and the publish runs twice."""
    consumers = {mode: ConsumerFactory.create() for mode in WAYS}
    rows = numbers(spark, JOBS, tasks=4)
    rows = rows.mapInArrow(failing(), rows.schema)
    for _time in range(2):
        for mode, consumer in consumers.items():
            write(rows, consumer.channel.name, publishId=mode, mode=mode)
    for consumer in consumers.values():
        assert exactly(JOBS, consumer)
    assert [publish.messages for publish in BulkPublish.objects.all()] == [JOBS] * 2


def next_publish_drops_what_is_left() -> bool:
    """Publish a message in bulk. Return True if no table of staged rows is left afterwards.

    A Python worker that outlived its driver may hold such a table for a moment more.
    """
    bulk.publish(ConsumerFactory.create().channel, [bulk.batch({})])
    return query(STAGED) == []


def test_a_driver_killed_in_its_commit_leaves_nothing_visible(spark: SparkSession) -> None:
    """A killed Spark driver publishes nothing. The next publish drops the rows that it staged."""
    consumer = ConsumerFactory.create()
    options = {"channel": consumer.channel.name, "publishId": "1"}
    with (
        driving.driver("publish", count=JOBS, tasks=2, options=options) as process,
        session() as other,
    ):
        other.execute("LOCK TABLE pulljobs_message IN SHARE MODE")
        publishing = BulkPublish.objects.all()
        wait_until(
            lambda: publishing.exists() and blocked_by(other), PATIENCE_SECONDS + JOBS / 1000
        )
        driving.kill(process)
        # Spark's Python workers have groups of their own: what one has sent could be done yet.
        other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pg_backend_pid() = ANY(pg_blocking_pids(pid))"
        )
        wait_until(driving.gone)
    assert Message.objects.count() == Job.objects.count() == 0
    assert BulkPublish.objects.get().state == "open"
    bulk.let_go()
    wait_until(next_publish_drops_what_is_left)
    write(numbers(spark, JOBS), consumer.channel.name, publishId="1")
    assert exactly(JOBS, consumer)
    assert query(STAGED) == []


class TestCommand:
    @pytest.fixture
    def channel(self) -> str:
        name: str = ConsumerFactory.create().channel.name
        return name

    def run(self, *arguments: Any, **options: Any) -> str:
        output = StringIO()
        call_command("pulljobs", "lake", "publish", *map(str, arguments), stdout=output, **options)
        return output.getvalue()

    def test_files_are_published_once(
        self, spark: SparkSession, tmp_path: Path, channel: str
    ) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text('{"payload": {"n": 1}, "key": "a"}\n{"payload": {"n": 2}}\n')
        assert "2 messages of 2 rows, 2 jobs" in self.run(path, "--channel", channel)
        assert "Published before" in self.run(path, "--channel", channel)
        stored = [(bytes(row.payload), row.content_type, row.key) for row in messages()]
        assert stored == [
            (b'{"n": 1}', "application/json", "a"),
            (b'{"n": 2}', "application/json", None),
        ]

    def test_an_id_that_was_used_for_something_else_is_refused(
        self, spark: SparkSession, tmp_path: Path, channel: str
    ) -> None:
        path, other = tmp_path / "rows.jsonl", ConsumerFactory.create()
        path.write_text('{"payload": "x"}\n')
        named = (path, "--publish-id", "nightly", "--channel")
        self.run(*named, channel)
        for elsewhere in (
            [other.channel.name],
            [channel, "--consumer", Consumer.objects.get(channel__name=channel).name],
            [channel, "--mode", "chunked"],
        ):
            with pytest.raises(CommandError, match="begun for another channel, consumer or mode"):
                self.run(*named, *elsewhere)
        assert len(messages()) == 1

    def test_rows_as_a_whole(self, spark: SparkSession, tmp_path: Path, channel: str) -> None:
        """With `--whole`, each row of a file is a payload in JSON."""
        path = tmp_path / "rows.csv"
        path.write_text("name,age\nAnn,7\n")
        self.run(path, "--channel", channel, "--whole")
        [message] = messages()
        assert bytes(message.payload) == b'{"name":"Ann","age":"7"}'
        path = tmp_path / "rows.jsonl"
        path.write_text(f"{WRITTEN}\n\n")
        self.run(path, "--channel", channel, "--whole")
        assert bytes(messages()[-1].payload).decode() == WRITTEN
        assert {message.content_type for message in messages()} == {"application/json"}

    def test_payloads_in_json_stay_as_they_are_written(
        self, spark: SparkSession, tmp_path: Path, channel: str
    ) -> None:
        written = [WRITTEN, "5", "1.10", "true", '{"b": 1.0, "B": {}}', "{}"]
        path = tmp_path / "rows.jsonl"
        objects = [f'{{"payload": {payload}}}' for payload in written]
        path.write_text("\n".join([f"[{objects[0]}, {objects[1]}]", *objects[2:]]))
        self.run(path, "--channel", channel)
        assert sorted(bytes(message.payload).decode() for message in messages()) == sorted(written)
        assert {message.content_type for message in messages()} == {"application/json"}
        path.write_text('{"payload": "gr\\u00fcn"}\n')
        self.run(path, "--channel", channel)
        assert (bytes(messages()[-1].payload).decode(), messages()[-1].content_type[:5]) == (
            "grün",
            "text/",
        )

    def test_numbers_of_columnar_files_are_published_as_json(
        self, spark: SparkSession, tmp_path: Path, channel: str
    ) -> None:
        path = tmp_path / "rows.parquet"
        pq.write_table(pa.table({"payload": [5, 6]}), path)
        self.run(path, "--channel", channel, "--mode", "chunked")
        assert sorted(bytes(message.payload) for message in messages()) == [b"5", b"6"]
        pq.write_table(pa.table({"a": [1], "b": pa.nulls(1, pa.string())}), path)
        self.run(path, "--channel", channel, "--whole")
        assert bytes(messages()[-1].payload) == b'{"a":1,"b":null}'
        assert {message.content_type for message in messages()} == {"application/json"}

    @pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
    def test_all_columns_come_from_text(
        self, spark: SparkSession, tmp_path: Path, channel: str, name: str
    ) -> None:
        path = tmp_path / name
        path.write_text(ALL_COLUMNS[path.suffix], newline="")
        self.run(path, "--channel", channel)
        [message] = messages()
        assert (bytes(message.payload), message.key) == (b'one\r\n"two\\', "a")
        assert (message.priority, message.client_message_id) == (3, "7")
        assert (message.headers, message.content_type) == ({"h": "v"}, "text/x")
        due, cost = Job.objects.values_list("available_at", "cost").get()
        assert cost == 2
        assert due is not None
        assert due.isoformat() == "2100-01-01T00:00:01.500000+00:00"

    @pytest.mark.parametrize("flags", [(), ("--whole",)])
    @pytest.mark.parametrize("name", ["rows.jsonl", "rows.csv"])
    def test_what_is_no_row_is_a_bad_row(
        self, spark: SparkSession, tmp_path: Path, channel: str, name: str, flags: tuple[str, ...]
    ) -> None:
        path = tmp_path / name
        head, good, *bad = NO_ROWS[path.suffix]
        if not flags:
            bad += NO_VALUES[path.suffix]
        path.write_text("\n".join([head, good, *bad, ""]).lstrip("\n"))
        with pytest.raises(CommandError, match=f"^{len(bad)} rows can't be published") as stopped:
            self.run(path, "--channel", channel, *flags)
        assert "secret" not in str(stopped.value)
        assert not Message.objects.exists()
        self.run(path, "--channel", channel, "--on-bad-row", "reject", *flags)
        assert len(messages()) == 1
        kept = [bytes(row.payload or b"").decode() for row in RejectedRow.objects.all()]
        assert sorted(kept) == sorted(bad)

    @pytest.mark.parametrize("name", ["a[1].jsonl", "{a,b}.csv", "a?*.csv", "ä b#%20.txt"])
    def test_a_name_is_no_pattern(
        self, spark: SparkSession, tmp_path: Path, channel: str, name: str
    ) -> None:
        """A file name such as `orders[1].csv`, a pattern for Spark, means that file only."""
        for other in ("a1.jsonl", "a.csv", "abc.csv", name):
            kept = "the file" if other == name else "another"
            written = {
                ".jsonl": f'{{"payload": "{kept}"}}',
                ".csv": f"payload\n{kept}",
                ".txt": kept,
            }
            (tmp_path / other).write_text(written[Path(other).suffix])
        self.run(tmp_path / name, "--channel", channel)
        assert [bytes(message.payload) for message in messages()] == [b"the file"]

    def test_a_file_that_spark_ignores_is_refused(
        self, spark: SparkSession, tmp_path: Path, channel: str
    ) -> None:
        (path := tmp_path / "_rows.jsonl").write_text('{"payload": "x"}')
        with pytest.raises(CommandError, match="is a hidden file, which Spark ignores: rename it"):
            self.run(path, "--channel", channel)

    @pytest.mark.parametrize(
        "line",
        ['{"payload": 1}{"payload": 2}', '{"payload": 1}, {"payload": 2}', '[{"payload": 1}] x'],
    )
    def test_a_line_that_goes_on_behind_its_object_is_refused(
        self, spark: SparkSession, tmp_path: Path, channel: str, line: str
    ) -> None:
        """A line with text behind its object is refused, because Spark would ignore that text."""
        path = tmp_path / "rows.jsonl"
        path.write_text(line)
        with pytest.raises(CommandError, match="goes on behind its object"):
            self.run(path, "--channel", channel)
        with pytest.raises(CommandError, match="1 rows can't be published"):
            self.run(path, "--channel", channel, "--whole")

    def test_headers_that_are_no_json_are_a_bad_row(
        self, spark: SparkSession, tmp_path: Path, channel: str
    ) -> None:
        path = tmp_path / "rows.csv"
        path.write_text('payload,headers\nx,no\nx,[1]\nx,"{""a"": 1}"\nx,{}\nx,\n')
        self.run(path, "--channel", channel, "--on-bad-row", "reject")
        assert (len(messages()), RejectedRow.objects.count()) == (2, 3)

    def test_files_of_other_columns_are_not_mixed(
        self, spark: SparkSession, tmp_path: Path, channel: str
    ) -> None:
        first, other = tmp_path / "first.csv", tmp_path / "other.csv"
        first.write_text("payload,key\nx,a\n")
        other.write_text("key,payload\nb,y\n")
        with pytest.raises(CommandError, match="have different headers"):
            self.run(first, other, "--channel", channel)
        first.write_text("")
        with pytest.raises(CommandError, match="^There is no header: the first line"):
            self.run(first, "--channel", channel)

    def test_a_mistake_is_reported_in_one_line(
        self, spark: SparkSession, tmp_path: Path, channel: str
    ) -> None:
        path = tmp_path / "rows.jsonl"
        path.write_text('{"payload": "x", "prio": 1}\n')
        with pytest.raises(CommandError, match=r"^Column 'prio' .* did you mean 'priority'\?$"):
            self.run(path, "--channel", channel)
        with pytest.raises(CommandError, match="no channel 'nowhere'"):
            self.run(path, "--channel", "nowhere")
        with pytest.raises(CommandError, match="cannot be read here"):
            self.run(tmp_path / "missing.jsonl", "--channel", channel)
        with pytest.raises(CommandError, match="one of these formats"):
            self.run(Path(__file__), "--channel", channel)


def messages() -> list[Message]:
    return list(Message.objects.order_by("id"))
