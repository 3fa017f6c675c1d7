"""Sink of streams: each micro-batch is published once, even if its driver is killed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pulljobs.lake.models import BulkPublish, RejectedRow, ReplayedJob
from pulljobs.lake.spark.failures import summarize_error
from pulljobs.lake.spark.session import dsn
from pulljobs.models import Consumer, Message
from pyspark_pulljobs import atomic, bulk_writer, requests
from pyspark_pulljobs.publish_ledger import SinkBatch
from tests.factories import ConsumerFactory
from tests.lake import bulk, driving
from tests.lake.driver import stream

pytestmark = pytest.mark.django_db(transaction=True)
FILES, ROWS = 4, 5


@pytest.fixture
def source(tmp_path: Path) -> str:
    for file in range(FILES):
        rows = (json.dumps({"payload": f"{file}-{row}"}) for row in range(ROWS))
        target = tmp_path / "source" / f"{file}.json"
        target.parent.mkdir(exist_ok=True)
        target.write_text("\n".join(rows))
    return str(tmp_path / "source")


def run(spark: SparkSession, source: str, checkpoint: Path, channel: str, **options: Any) -> None:
    """Publish all files through the sink of a channel. Raise the error if the query fails."""
    writing = stream(spark, source).writeStream.format("pulljobs")
    writing = writing.options(dsn=dsn(), channel=channel, **options)
    started = writing.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    started.start().awaitTermination()


def payloads() -> list[str]:
    return sorted(bytes(message.payload).decode() for message in Message.objects.all())


EVERY = [f"{file}-{row}" for file in range(FILES) for row in range(ROWS)]


def test_every_batch_once_with_a_driver_killed_between_the_commits(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    """A driver dies after the sink's commit. The next driver repeats the batch without effect."""
    channel = ConsumerFactory.create().channel.name
    checkpoint = tmp_path / "checkpoint"
    orders = {"source": source, "checkpoint": str(checkpoint), "die_after": 1}
    with driving.driver("sink", options={"channel": channel}, **orders) as process:
        assert process.wait(driving.PATIENCE_SECONDS) == -9
    assert len(payloads()) == len(set(payloads())) == 2 * ROWS
    assert not (checkpoint / "commits" / "1").exists()
    run(spark, source, checkpoint, channel)
    assert payloads() == EVERY
    batches = BulkPublish.objects.order_by("batch_id")
    assert [(batch.batch_id, batch.state, batch.messages) for batch in batches] == [
        (number, "done", ROWS) for number in range(FILES)
    ]
    assert len({batch.query_id for batch in batches}) == 1


def test_a_query_with_a_new_checkpoint_publishes_everything_that_it_reads(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    channel = ConsumerFactory.create().channel.name
    for checkpoint in ("first", "first", "second"):
        run(spark, source, tmp_path / checkpoint, channel)
    assert payloads() == sorted(EVERY * 2)


def test_bad_rows_stop_the_query_or_are_kept(
    spark: SparkSession, source: str, tmp_path: Path
) -> None:
    channel = ConsumerFactory.create().channel.name
    options = {"maxPayloadBytes": "2"}
    with pytest.raises(PySparkException) as failed:
        run(spark, source, tmp_path / "first", channel, **options)
    assert "5 rows can't be published, so nothing was published" in summarize_error(failed.value)
    assert Message.objects.count() == 0
    run(spark, source, tmp_path / "second", channel, onBadRow="reject", **options)
    assert sum(publish.rejected for publish in BulkPublish.objects.all()) == FILES * ROWS


def test_a_checkpoint_tells_no_secrets(spark: SparkSession, source: str, tmp_path: Path) -> None:
    """The checkpoint of a query does not contain the DSN."""
    channel = ConsumerFactory.create().channel.name
    run(spark, source, tmp_path / "checkpoint", channel)
    written = [path for path in (tmp_path / "checkpoint").rglob("*") if path.is_file()]
    assert written
    assert not any(dsn().encode() in path.read_bytes() for path in written)
    with pytest.raises(PySparkException) as failed:
        run(spark, source, tmp_path / "other", channel, mode="chunked")
    assert "A sink sets mode and publishId itself" in summarize_error(failed.value)


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Function that publishes batches 0 to 3 of a stream. It returns those still recorded."""
    monkeypatch.setattr(atomic, "KEPT_BATCHES", 1)

    def run(to: Consumer, rows: pa.RecordBatch, **options: str) -> list[int]:
        given = {"dsn": dsn(), "channel": to.channel.name, **options}
        request, query_id = requests.parse_request(given), uuid4()
        for number in range(4):
            with bulk.direct() as session:
                batch, address = (
                    SinkBatch(query_id, number),
                    requests.find_address(session, request),
                )
                publish = bulk_writer.open_publish(session, request, address, batch)
                task = atomic.stage(session, request, publish, iter([rows]), batch)
                atomic.commit(session, request, address, publish.id, [task], batch)
        return [done.batch_id or 0 for done in BulkPublish.objects.order_by("batch_id")]

    return run


def test_the_ledger_remembers_the_last_batches(batches: Callable[..., list[int]]) -> None:
    """Only the records of the last batches of a query are kept. No message is deleted."""
    assert batches(ConsumerFactory.create(), bulk.batch({})) == [2, 3]
    assert Message.objects.count() == 4


def test_a_batch_is_remembered_while_its_refused_keys_are_kept(
    batches: Callable[..., list[int]],
) -> None:
    consumer = ConsumerFactory.create(max_queued_per_key=1)
    assert batches(consumer, bulk.batch({"key": "a"}), onBadRow="reject") == [1, 2, 3]
    assert RejectedRow.objects.count() == 3


def test_a_batch_is_remembered_as_long_as_its_replays(batches: Callable[..., list[int]]) -> None:
    """The record of a batch with replayed jobs is not deleted."""
    consumer = ConsumerFactory.create()
    schema = pa.schema({"payload": pa.binary(), "original_job": pa.int64()})
    rows = bulk.batch({"original_job": 7}, schema=schema)
    assert batches(consumer, rows, consumer=consumer.name) == [0, 1, 2, 3]
    assert ReplayedJob.objects.count() == 4
