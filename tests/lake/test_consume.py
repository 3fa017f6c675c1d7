"""Tests of `pulljobs lake consume` and `release` with a real session."""

import json
import os
import subprocess
import sys
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any
from uuid import uuid4

import pandas as pd
import pyarrow as pa
import pytest
from django.core.management import CommandError, call_command
from django.db import OperationalError, connection
from django.db.models.functions import Now
from django.test import override_settings
from django.utils import timezone
from pyspark.sql import SparkSession

from pulljobs import operating
from pulljobs.errors import ConfigurationError, Discard, LakeError
from pulljobs.lake.models import StreamBatch
from pulljobs.lake.spark import checkpoints, consuming
from pulljobs.models import ArchivedJob, Attempt, Consumer, Job, Lease
from pulljobs.states import Event, State
from pyspark_pulljobs import stream as stream_of_jobs
from pyspark_pulljobs.handling import Handling, resolve
from tests.factories import ConsumerFactory, published
from tests.lake import lakes
from tests.lake.lakes import Place, environment, setting_of
from tests.lake.object_store import StorePlace
from tests.lake.streams import options, source, states

pytestmark = pytest.mark.django_db(transaction=True)

ATTEMPTS = 4
"""Number of times that Spark tries a task, each of which is a delivery."""


@pytest.fixture
def consumer() -> Consumer:
    return ConsumerFactory.create()


def consume(consumer: Consumer, directory: Path, handler: str, *flags: str) -> dict[str, Any]:
    """Run `pulljobs lake consume` with a handler of `handled.py`, and return its JSON.

    If lakes are in a bucket, the command chooses a temporary directory for its checkpoint.
    """
    output = StringIO()
    checkpoint = () if lakes.SCHEME else ("--checkpoint", str(directory / "checkpoint"))
    call_command(
        *("pulljobs", "lake", "consume", "--json"),
        *("--channel", consumer.channel.name, "--consumer", consumer.name),
        *("--handler", f"tests.lake.handled:{handler}"),
        *(*checkpoint, "--partitions", "1", *flags),
        stdout=output,
    )
    answer: dict[str, Any] = json.loads(output.getvalue())
    return answer


def test_a_function_of_pandas_settles_what_it_names_and_spark_delivers_the_rest(
    spark: SparkSession, consumer: Consumer, tmp_path: Path
) -> None:
    payloads = ("deliver", "retry", "reject", "deliver")
    made = [published(consumer, payload=payload)[0] for payload in payloads]
    answer = consume(consumer, tmp_path, "sort_out", "--batch", "3")
    assert {name: answer[name] for name in ("acked", "failed", "lost")} == {
        "acked": 2, "failed": 2, "lost": 0,
    }  # fmt: skip
    archived = dict(ArchivedJob.objects.values_list("job_id", "state"))
    assert archived == {made[0]: "DELIVERED", made[2]: "DEAD", made[3]: "DELIVERED"}
    waiting = Job.objects.get(pk=made[1])
    assert (waiting.state, waiting.retry_count, waiting.error) == (State.QUEUED, 1, "as asked")
    assert not Lease.objects.exists()

    [more] = published(consumer, payload="deliver")
    assert consume(consumer, tmp_path, "is_fine", "--form", "arrow")["acked"] == 1
    assert ArchivedJob.objects.get(job_id=more).state == State.DELIVERED


@pytest.mark.parametrize(
    ("handler", "state", "error"),
    [
        ("gives_up", State.DEAD, "no longer wanted"),
        ("raises", State.QUEUED, "ValueError: not today"),
    ],
)
def test_what_a_handler_raises_goes_for_all_it_was_given(
    spark: SparkSession, consumer: Consumer, tmp_path: Path, handler: str, state: State, error: str
) -> None:
    """A Discard rejects all jobs of its batch with its bare text, and a ValueError retries them."""
    Consumer.objects.update(retry_delays=[3600.0])
    published(consumer, 3)
    assert consume(consumer, tmp_path, handler)["failed"] == 3
    assert {(job.error or "").partition("\n")[0] for job in Job.objects.all()} == {error}
    assert states() == {state: 3}


def test_a_handler_that_snoozes_queues_all_it_was_given_uncharged(
    spark: SparkSession, consumer: Consumer, tmp_path: Path
) -> None:
    published(consumer, 3)
    assert consume(consumer, tmp_path, "snoozes")["acked"] == 0
    later = Job.objects.filter(available_at__gt=Now() + timedelta(minutes=50))
    assert list(later.values_list("retry_count", "deliveries", "error")) == [(0, 0, None)] * 3
    reasons = Attempt.objects.values_list("event", "error")
    assert list(reasons) == [("release", "not before noon")] * 3


def test_a_job_that_a_handler_names_twice_is_an_error(
    spark: SparkSession, consumer: Consumer, tmp_path: Path
) -> None:
    [job] = published(consumer)
    with pytest.raises(CommandError, match=f"^The handler names job {job} 2 times: name it once"):
        consume(consumer, tmp_path, "repeats", "--form", "arrow")


@pytest.mark.parametrize("job_ids", [[None], [None, 2**53 + 1]])
def test_an_id_that_pandas_lost_or_rounded_settles_no_job(job_ids: list[int | None]) -> None:
    """A handler's job id that pandas turned into None or a rounded float is refused."""
    given = pa.RecordBatch.from_pylist([{"job_id": 2**53 + 1, "lease_token": str(uuid4())}])
    outcomes = pd.DataFrame({"job_id": job_ids}).tail(1)
    handling = Handling("", "", "pandas", 100)
    with pytest.raises(LakeError, match=r"^The handler names job (None|9007\d+\.0), but ids are"):
        handling._run_handler(lambda _frame: outcomes, given)


def test_a_reason_that_is_no_text_rejects_the_jobs_as_a_worker_does() -> None:
    def give_up(_frame: pd.DataFrame) -> None:
        raise Discard(404)  # type: ignore[arg-type]  # the mistake

    given = pa.RecordBatch.from_pylist([{"job_id": 1, "lease_token": str(uuid4())}])
    [settlement] = Handling("", "", "pandas", 100)._run_handler(give_up, given)
    assert (settlement.event, settlement.error) == (Event.REJECT, "404")


BAD_RESULTS = ("NaN", "{", '"\\ud800"', json.dumps("x" * 1000), "[" * 400 + "1e999999" + "]" * 400)
BAD_DELAYS = ("8e13", "1e14")


@pytest.mark.parametrize(
    ("handler", "bad"), [("returns_payloads", BAD_RESULTS), ("waits_payloads", BAD_DELAYS)]
)
@override_settings(PULLJOBS={"MAX_RESULT_BYTES": 900})
def test_what_can_not_be_written_of_a_job_fails_that_job_alone(
    spark: SparkSession, consumer: Consumer, tmp_path: Path, handler: str, bad: tuple[str, ...]
) -> None:
    good = {published(consumer, payload=payload)[0] for payload in ("1", "2")}
    failed = {published(consumer, payload=payload)[0] for payload in bad}
    consume(consumer, tmp_path, handler)
    retried = Job.objects.filter(error__startswith="Its outcome can't be written: ")
    assert set(retried.values_list("id", "state", "retry_count")) == {
        (job, State.QUEUED, 1) for job in failed
    }
    assert {*ArchivedJob.objects.values_list("job_id", flat=True)} | {
        *Job.objects.exclude(pk__in=failed).values_list("id", flat=True)
    } == good
    assert not Lease.objects.exists()


def test_a_result_is_kept_as_far_as_the_database_takes_it(
    spark: SparkSession, consumer: Consumer, tmp_path: Path
) -> None:
    published(consumer, payload='{"a": "b\\u0000"}')
    assert consume(consumer, tmp_path, "returns_payloads")["acked"] == 1
    assert ArchivedJob.objects.get().result == {"a": "b\N{REPLACEMENT CHARACTER}"}


def test_a_batch_that_makes_its_query_fail_each_time_ends_dead(
    spark: SparkSession, consumer: Consumer, tmp_path: Path
) -> None:
    Consumer.objects.update(max_deliveries=2 * ATTEMPTS)
    [job] = published(consumer)
    place = ("--checkpoint", f"{tmp_path.as_uri()}/checkpoint")
    for state in (State.QUEUED, State.DEAD):
        with pytest.raises(CommandError, match="crashed"):
            consume(consumer, tmp_path, "crashes_its_worker", *place)
        assert states() == {state: 1}
        assert not Lease.objects.exists()
    dead = ArchivedJob.objects.get()
    assert (dead.job_id, dead.reason, dead.deliveries) == (job, "max_deliveries", 2 * ATTEMPTS)
    assert "crashed" in str(dead.error)
    [other] = published(consumer)
    assert consume(consumer, tmp_path, "is_fine", "--form", "arrow", *place)["acked"] == 1
    assert ArchivedJob.objects.get(job_id=other).state == State.DELIVERED


def test_a_failure_of_the_query_is_kept_as_far_as_the_database_takes_it(
    spark: SparkSession, consumer: Consumer, tmp_path: Path
) -> None:
    Consumer.objects.update(max_deliveries=1)
    published(consumer)
    with pytest.raises(CommandError, match="PastAllError: no\0thing"):
        consume(consumer, tmp_path, "fails_its_query")
    assert str(ArchivedJob.objects.get().error).endswith("PastAllError: nothing")


def test_a_release_that_fails_is_logged_next_to_the_failure_of_the_query(
    spark: SparkSession,
    consumer: Consumer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fails(*args: Any) -> None:
        raise OperationalError("the server is gone\nDETAIL: a payload")

    published(consumer)
    monkeypatch.setattr(consuming, "release", fails)
    with pytest.raises(CommandError, match="crashed"):
        consume(consumer, tmp_path, "crashes_its_worker")
    assert "not released (OperationalError: the server is gone): run `pulljobs" in caplog.text
    assert "payload" not in caplog.text
    assert states() == {State.INFLIGHT: 1}


def test_a_checkpoint_that_cannot_be_read_from_here_is_logged_and_the_query_goes_on(
    spark: SparkSession,
    consumer: Consumer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    published(consumer)
    exists = checkpoints.exists
    monkeypatch.setattr(checkpoints, "exists", lambda _place: exists("nowhere://x/y"))
    consume(consumer, tmp_path, "is_fine", "--form", "arrow")
    warning = "not released (ConfigurationError: 'nowhere://x/y' cannot be read from here"
    assert warning in caplog.text


def test_a_checkpoint_that_java_cannot_write_is_one_line_before_anything_is_claimed(
    spark: SparkSession, consumer: Consumer, tmp_path: Path
) -> None:
    """A checkpoint that Java can't write is refused. With a lake on S3, the default is local."""
    published(consumer)
    with pytest.raises(CommandError, match=r"no filesystem for the checkpoint 's3://a/b'.*-aws:"):
        consume(consumer, tmp_path, "is_fine", "--checkpoint", "s3://a/b")
    assert states() == {State.QUEUED: 1}
    with override_settings(PULLJOBS={"LAKE": "s3a://a/b"}):
        done = consume(consumer, tmp_path, "is_fine", "--form", "arrow", "--checkpoint", "")
    assert done["acked"] == 1


def test_streams_whose_names_differ_by_a_dot_have_their_own_checkpoints(
    spark: SparkSession, consumer: Consumer, tmp_path: Path
) -> None:
    with lakes.lake_at(tmp_path / "lake"):
        for stream in ("a.b/c", "a/b.c", "..", "*"):
            published(consumer)
            flags = ("--checkpoint", "", "--stream", stream)
            assert consume(consumer, tmp_path, "is_fine", "--form", "arrow", *flags)["acked"] == 1


def test_wrong_arguments_are_reported_in_one_line(
    spark: SparkSession, consumer: Consumer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CommandError, match="There is no handler 'tests.lake.handled:nothing'"):
        consume(consumer, tmp_path, "nothing")
    consumer.name = "missing"
    monkeypatch.setattr(consuming, "_start", None)  # Spark logs the trace of a query that fails.
    with pytest.raises(CommandError, match=r"^There is no consumer 'missing' of channel"):
        consume(consumer, tmp_path, "is_fine")


def test_a_query_of_a_paused_consumer_says_why_it_gets_no_jobs(
    spark: SparkSession, consumer: Consumer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    published(consumer)
    operating.pause(consumer.channel, timezone.now() + timedelta(hours=1))
    assert consume(consumer, tmp_path, "is_fine")["acked"] == 0
    assert f"{consumer.channel.name}/{consumer.name} is paused until 20" in caplog.text


@pytest.mark.parametrize("name", ["shop", "shop:", ":score", ".shop:score"])
def test_a_handler_is_a_module_and_a_function(name: str) -> None:
    with pytest.raises(ConfigurationError, match="must have the form module:function"):
        resolve(name)


@pytest.mark.parametrize("in_bucket", [False, True])
def test_a_release_delivers_what_the_query_was_done_with_and_gives_back_the_rest(
    consumer: Consumer, tmp_path: Path, request: pytest.FixtureRequest, in_bucket: bool
) -> None:
    published(consumer, 15)
    with source(consumer) as stream:
        stream.run()
        done = stream.at
        owner = stream.reader.stream  # it died after a claim and before the ack
        owner._links.run(lambda link: owner._claim(link, 2, 10))
        owner.leave()
    assert states() == {State.INFLIGHT: 15}
    name = f"{consumer.channel.name}/{consumer.name}"
    place: Place = tmp_path / "a b"
    if in_bucket:
        request.getfixturevalue("store")
        place = StorePlace("s3a")
    write_checkpoint(place, done)
    if not in_bucket:
        with pytest.raises(CommandError, match=f"There is no checkpoint in '{tmp_path}'"):
            call_command("pulljobs", "lake", "release", name, "--checkpoint", str(tmp_path))
        assert states() == {State.INFLIGHT: 15}
    call_command("pulljobs", "lake", "release", name, "--checkpoint", setting_of(place))
    assert states() == {State.QUEUED: 5}
    assert ArchivedJob.objects.count() == 10
    with pytest.raises(CommandError, match="There is no stream 'nothing'"):
        call_command("pulljobs", "lake", "release", "nothing")


@pytest.mark.parametrize("offset", ["5", "-", '"x"', ""])
def test_a_checkpoint_of_another_source_releases_nothing(
    consumer: Consumer, tmp_path: Path, offset: str
) -> None:
    published(consumer, 15)
    with source(consumer) as stream:
        stream.run()
    write_checkpoint(tmp_path, stream.at)
    written = tmp_path / "offsets" / "0"
    *before, _offset = written.read_text().splitlines()
    written.write_text("\n".join([*before, offset]))
    name = f"{consumer.channel.name}/{consumer.name}"
    with pytest.raises(CommandError, match="is the checkpoint of a query over another source"):
        call_command("pulljobs", "lake", "release", name, "--checkpoint", str(tmp_path))
    assert states() == {State.INFLIGHT: 10, State.QUEUED: 5}


def test_a_release_has_the_password(consumer: Consumer) -> None:
    """`lake release` sets PGPASSWORD in its process from the settings of Django."""
    with source(consumer) as stream:
        stream.run()
    code = (
        "import os, django; django.setup(); from django.core.management import call_command;"
        f"call_command('pulljobs', 'lake', 'release', '{consumer.channel.name}/{consumer.name}');"
        "print(os.environ['PGPASSWORD'])"
    )
    given = {**os.environ, **environment("hush")}
    given.pop("PGPASSWORD", None)
    ran = subprocess.run(
        [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
    )
    password = connection.get_connection_params().get("password") or "hush"
    assert ran.stdout.splitlines()[-1] == password


def write_checkpoint(place: Place, offset: dict[str, Any]) -> None:
    """Write a checkpoint as Spark leaves it after its first batch."""
    for name, text in (("offsets", f"v1\n{{}}\n{json.dumps(offset)}"), ("commits", "v1\n{}")):
        if isinstance(place, Path):
            (place / name).mkdir(parents=True)
        (place / f"{name}/0").write_bytes(text.encode())


def test_a_run_counts_what_is_forgotten_of_it_too(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The counts of a run include batches whose records were deleted."""
    monkeypatch.setattr(stream_of_jobs, "KEPT_BATCHES", 1)
    name = f"{consumer.channel.name}/{consumer.name}"
    assert consuming._counts(name) == {"acked": 0, "failed": 0, "lost": 0}
    first, *_others = published(consumer, 40)
    with source(consumer) as stream:
        stream.run()
        Job.objects.filter(pk=first).delete()
        while stream.run():
            pass
    assert StreamBatch.objects.count() == 1
    assert consuming._counts(name) == {"acked": 39, "failed": 0, "lost": 1}


def test_a_password_is_in_no_option(consumer: Consumer) -> None:
    assert "password" not in options(consumer)["dsn"]
