"""Replay: archived jobs of the lake are published again, once, linked to the original."""

import logging
from collections.abc import Iterator
from logging.handlers import BufferingHandler
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from django.conf import settings as django_settings
from django.core.management import CommandError, call_command
from django.test import override_settings
from pyspark.logger import PySparkLogger
from pyspark.sql import SparkSession

from pulljobs import operating
from pulljobs.engine import outcomes
from pulljobs.engine.outcomes import Held
from pulljobs.lake.models import RejectedRow, ReplayedJob
from pulljobs.lake.spark import session
from pulljobs.models import ArchivedJob, Consumer, Job, Message
from pulljobs.publishing import publish
from pulljobs.storage import jobs
from pyspark_pulljobs import replay_steps
from tests.factories import USING, ConsumerFactory, JobFactory, published, taken
from tests.lake.lakes import lake_at, lakes, run
from tests.sessions import query

pytestmark = pytest.mark.django_db(transaction=True)
DEAD = "state = 'DEAD'"
HELD_BACK = "key = 'large'"
FILLED = pa.schema(
    [("message_id", pa.int64()), ("payload", pa.binary()), ("payload_bytes", pa.int64())]
)


class ExportedJobs(NamedTuple):
    consumer: Consumer
    dead: list[int]
    delivered: int
    """Id of a job that was dead, redriven and then delivered."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ExportedJobs]:
    """Consumer and its jobs, exported to the lake. One payload is too large to be exported."""
    consumer: Consumer = ConsumerFactory.create(max_queued_per_key=1000)
    dead = [JobFactory.create(consumer=consumer, state="DEAD", payload="small").id]
    options: dict[str, Any] = {"key": "large", "priority": 3, "headers": {"h": "v"}}
    dead += published(consumer, payload="large" * 10, **options)
    operating.kill(dead[1:], by="test")
    revived = JobFactory.create(consumer=consumer, state="DEAD")
    operating.redrive([revived.id])
    held = Held(revived.id, taken(consumer, revived.id))
    jobs.finish(USING, [outcomes.deliver(held)])
    with lake_at(tmp_path / "lake") as place:
        run("export", "--with-payload", "--payload-cap", "20")
        assert lakes(place, "archive")[0] == ArchivedJob.objects.count()
        yield ExportedJobs(consumer, dead, revived.id)


def replayed(consumer: Consumer) -> list[tuple[Any, ...]]:
    rows = Job.objects.filter(consumer=consumer, state="QUEUED").select_related("message")
    return sorted(
        (bytes(job.message.payload).decode(), job.message.key, job.priority, job.message.headers)
        for job in rows
    )


EXPECTED = [("large" * 10, "large", 3, {"h": "v"}), ("small", None, 0, {})]


def test_dead_jobs_are_counted_then_replayed_once(spark: SparkSession, world: ExportedJobs) -> None:
    counted = run("replay", "--where", DEAD, "--dry-run")
    assert (counted["jobs"], counted["fresh"]) == (2, 2)
    assert replayed(world.consumer) == []
    assert run("replay", "--where", DEAD)["replayed"] == 2
    assert replayed(world.consumer) == EXPECTED
    links = dict(ReplayedJob.objects.values_list("original_job_id", "message_id"))
    assert sorted(links) == sorted(world.dead)
    texts = {id: Message.objects.get(pk=links[id]).payload for id in world.dead}
    assert [bytes(texts[id]).decode()[:5] for id in world.dead] == ["small", "large"]
    assert run("replay", "--where", DEAD, "--dry-run")["fresh"] == 0
    assert run("replay", "--where", DEAD)["replayed"] == 0
    assert len(replayed(world.consumer)) == 2


def test_what_was_accepted_once_is_replayed_whatever_the_limits_are_by_then(
    spark: SparkSession, world: ExportedJobs
) -> None:
    """A replay ignores limits of payloads and headers that are lower than when it was published."""
    limits = {"MAX_PAYLOAD_BYTES": 10, "MAX_HEADERS": 0, "MAX_HEADER_BYTES": 0}
    with override_settings(PULLJOBS=django_settings.PULLJOBS | limits):
        assert run("replay", "--where", DEAD)["replayed"] == 2
    assert replayed(world.consumer) == EXPECTED


def test_to_another_consumer_and_again(spark: SparkSession, world: ExportedJobs) -> None:
    """Jobs are replayed to the consumer of `--to` only, once, and with `--again` again.

    The condition may use columns of the message.
    """
    other = ConsumerFactory.create()
    neighbor = ConsumerFactory.create(channel=other.channel)
    to = ["--to", f"{other.channel.name}/{other.name}"]
    assert run("replay", "--where", f"{DEAD} AND {HELD_BACK}", *to)["replayed"] == 1
    assert [row[:3] for row in replayed(other)] == [("large" * 10, "large", 3)]
    assert replayed(neighbor) == replayed(world.consumer) == []
    where = f"job_id IN ({world.dead[1]}, {world.delivered})"
    assert run("replay", "--where", where, *to)["replayed"] == 1
    assert run("replay", "--where", where, *to, "--again")["replayed"] == 2
    assert len(replayed(other)) == 4


def test_a_replay_whose_id_was_used_before_says_so(
    spark: SparkSession, world: ExportedJobs, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--where", f"{DEAD} AND key IS NULL", "--publish-id", "nightly"]
    assert run("replay", *small)["replayed"] == 1
    again = run("replay", "--where", DEAD, "--publish-id", "nightly")
    assert again["replayed"] == 0
    assert [publish["done_before"] for publish in again["publishes"]] == [True]
    call_command("pulljobs", "lake", "replay", *small)
    output = capsys.readouterr().out
    path = f"{world.consumer.channel.name}/{world.consumer.name}"
    assert f"{path}: nothing now, because 1 were replayed as nightly/{world.consumer.pk}" in output
    assert "0 jobs were replayed." in output
    assert len(replayed(world.consumer)) == 1


def test_a_payload_that_is_nowhere_is_rejected(spark: SparkSession, world: ExportedJobs) -> None:
    [message_id] = ArchivedJob.objects.filter(job_id=world.dead[1]).values_list(
        "message_id", flat=True
    )
    query("DELETE FROM pulljobs_message WHERE id = %s", [message_id])
    [publish] = run("replay", "--where", DEAD)["publishes"]
    assert publish["consumer"] == f"{world.consumer.channel.name}/{world.consumer.name}"
    assert (publish["replayed"], publish["rejected"]) == (1, 1)
    assert "payload is NULL" in RejectedRow.objects.get().error


def test_payloads_that_are_read_from_the_database_are_bounded_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payloads = [b"a" * 6, b"b" * 6, b"c" * 20, b"", b"d"]
    channel = ConsumerFactory.create().channel.name
    message_ids = [publish(channel, payload).message_id for payload in payloads]
    sizes = [*map(len, payloads[:4]), None]
    given = {"message_id": message_ids, "payload": [None] * 5, "payload_bytes": sizes}
    batch = pa.RecordBatch.from_pydict(given).cast(FILLED)
    monkeypatch.setattr(replay_steps, "FILL_BYTES", 10)
    filled = list(replay_steps.fill_payloads([batch], session.dsn()))
    assert [part["payload"].to_pylist() for part in filled] == [
        payloads[:1],
        payloads[1:2],
        payloads[2:],
    ]


@pytest.fixture
def logged_by_spark() -> Iterator[list[logging.LogRecord]]:
    """Provide a list of the errors of queries that PySpark logs meanwhile."""
    handler, logger = BufferingHandler(100), PySparkLogger.getLogger("SQLQueryContextLogger")
    logger.addHandler(handler)
    yield handler.buffer
    logger.removeHandler(handler)


def test_a_mistake_is_reported_in_one_line(
    spark: SparkSession, world: ExportedJobs, logged_by_spark: list[logging.LogRecord]
) -> None:
    for where, error in {"stat = 'DEAD'": "stat", "state = ": "SYNTAX"}.items():
        with pytest.raises(CommandError, match=error) as failed:
            run("replay", "--where", where)
        assert "\n" not in str(failed.value)
    assert logged_by_spark == []
    with pytest.raises(CommandError, match="no consumer 'a/b'"):
        run("replay", "--where", DEAD, "--to", "a/b")
    Job.objects.all().delete()
    world.consumer.delete()
    with pytest.raises(CommandError, match="are gone"):
        run("replay", "--where", DEAD)
