"""Runs of a handler over a consumer's jobs on Spark, and release of jobs that a query holds."""

import hashlib
import json
import logging
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from django.db.models import QuerySet

from pulljobs.conf import settings
from pulljobs.diagnosis import times
from pulljobs.errors import ConfigurationError
from pulljobs.lake.models import Stream, StreamBatch
from pulljobs.lake.spark import failures, jvm, remote, session
from pulljobs.models import Consumer
from pulljobs.storage.status import read_status

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pulljobs.lake.spark.checkpoints import Offset

logger = logging.getLogger("pulljobs.lake")

POLL_SECONDS: Final = 1
PAUSED: Final = "%s/%s is paused until %s: the query gets no jobs before, unless it is resumed."
SPECIAL: Final = re.compile(r"[^A-Za-z0-9_-]")
LONGEST_NAME: Final = 100
"""Number of characters of a stream's name in the name of its folder."""
UNRELEASED: Final = (
    "Jobs of stream %s are not released (%s): run `pulljobs lake release %s`, or wait for the end "
    "of their leases, which is in %.0f seconds at most."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumeOptions:
    """Handler to run, the consumer whose jobs it gets, and the name and pace of the query."""

    channel: str
    consumer: str
    handler: str
    """`module:function`, importable where tasks run."""
    form: str = "pandas"
    """Type of the data frames that the handler gets: "pandas" or "arrow"."""
    stream: str
    """Name of the stream, the same across restarts."""
    checkpoint: str = ""
    """Directory or URL, or empty for one in the lake or a temporary directory.

    It is empty after the start only if a Spark Connect server chose the directory.
    """
    every: float | None = None
    """Seconds between the starts of batches, or None to end after the jobs that wait now."""
    options: Mapping[str, str]
    """Further options of the data source, such as `maxRowsPerBatch`."""

    def source(self) -> dict[str, str]:
        return {
            "dsn": session.dsn(),
            "channel": self.channel,
            "consumer": self.consumer,
            "stream": self.stream,
            **self.options,
        }


def run(spark: "SparkSession", options: ConsumeOptions) -> dict[str, int]:
    """Run the handler until the waiting jobs are done, or with `options.every` without end.

    SIGTERM and SIGINT end it. Return the numbers of jobs that were acked, failed and lost in this
    run. Afterwards the stream holds no jobs, unless an error of their release is logged. If the
    query fails, its error is raised, and the claim of its last batch counts towards
    `max_deliveries`.
    """
    from pyspark_pulljobs.handling import resolve

    resolve(options.handler)
    warn_if_paused(options)
    _check_consumer(options)
    before = _counts(options.stream)
    with _catch_signals() as stopped, _choose_checkpoint(spark, options) as checkpoint:
        error = _run_query(spark, replace(options, checkpoint=checkpoint), stopped)
    if error is not None:
        raise error
    after = _counts(options.stream)
    return {name: after[name] - before[name] for name in after}


def warn_if_paused(options: ConsumeOptions) -> None:
    """Log a warning if the consumer or its channel is paused, since the query then finds no job."""
    using = settings().DATABASE
    rows = Consumer.objects.using(using).filter(
        channel__name=options.channel, name=options.consumer
    )
    for consumer_id in rows.values_list("pk", flat=True):
        status = read_status(using, consumer_id)
        if status is not None and status.is_paused and status.paused_until is not None:
            until = times.format_time(status.paused_until)
            logger.warning(PAUSED, options.channel, options.consumer, until)


def _check_consumer(options: ConsumeOptions) -> None:
    """Raise ConfigurationError for a wrong option or consumer, before a query starts.

    The query would raise it as well, but Spark would log a trace.
    """
    from pyspark_pulljobs import ownership, stream_options
    from pyspark_pulljobs.database_session import open_session

    session.share_password()
    parsed = stream_options.parse_options(options.source())
    with open_session(parsed.dsn) as opened:
        ownership.find_consumer(opened, parsed)


def _run_query(
    spark: "SparkSession", options: ConsumeOptions, stopped: threading.Event
) -> Exception | None:
    """Run the query until it ends or `stopped` is set, and return its error or None.

    Then ack, release or expire the jobs that it holds, as `release` does, with the error as
    `failure`.
    """
    seconds = _lease_seconds(options)
    query = _start(spark, options)
    error = _wait_for_failure(query, stopped)
    _release_after(query, error, options, seconds)
    return error


def release(
    stream: str, checkpoint: str | None = None, failure: str | None = None
) -> dict[str, int]:
    """Ack the batches that a stopped query has done by its checkpoint, and release its other jobs.

    With `failure`, the error of the query, jobs of other batches in the checkpoint expire instead,
    so that their claims count towards `max_deliveries`. Otherwise a batch that makes the query fail
    would come again forever. Without a checkpoint, all jobs are released. Return the number of
    released and expired jobs as "released". Raise StreamTaken while the query runs, and
    ConfigurationError if there is no such stream or checkpoint.
    """
    from pulljobs.lake.spark import checkpoints

    if checkpoint is None:
        return _release(stream)
    done = _seq(checkpoints.read_done(checkpoint), stream)
    begun = 0 if failure is None else _seq(checkpoints.read_begun(checkpoint), stream)
    return _release(stream, done, begun, failure)


def _release(
    stream: str, done: int = 0, begun: int = 0, failure: str | None = None
) -> dict[str, int]:
    """Ack the batches of a stream up to number `done`, and release its other jobs.

    Of the others, jobs of batches up to number `begun` expire instead, with `failure` as their
    error. Return the number of released and expired jobs as "released".
    """
    from pyspark_pulljobs import stream_options
    from pyspark_pulljobs.stream import Stream as Owner

    session.share_password()  # this process may have opened no session of Spark
    owner = Owner(stream_options.parse_options(_options(stream)))
    try:
        owner.ack(done)
        return {"released": owner.release_all(begun, failure)}
    finally:
        owner.leave()


def _release_by_progress(query: "StreamingQuery", stream: str, failure: str | None) -> None:
    """Release the jobs of a query on a Spark Connect server, whose checkpoint may be out of reach.

    The progress that the query reported last names the last batch that is done. If the query
    failed, the jobs of the next batch, which had begun, expire instead.
    """
    progress = query.lastProgress
    done = _seq(json.loads(progress.sources[0].endOffset) if progress else None, stream)
    others = _open_batches(stream).filter(seq__gt=done).order_by("seq")
    begun = None if failure is None else others.values_list("seq", flat=True).first()
    _release(stream, done, begun or 0, failure)


def _release_after(
    query: "StreamingQuery", error: Exception | None, options: ConsumeOptions, seconds: float
) -> None:
    """Release the jobs of a query that has ended, and log an error of the release itself.

    It is not raised, so that it does not hide `error`, the query's own. `seconds` is the lease
    duration: the longest time for which the jobs stay leased if they are not released.
    """
    from pulljobs.lake.spark import checkpoints

    failure = None if error is None else failures.summarize_error(error)
    try:
        if options.checkpoint and checkpoints.exists(options.checkpoint):
            release(options.stream, options.checkpoint, failure)
        elif remote.is_remote(query) and _open_batches(options.stream).exists():
            _release_by_progress(query, options.stream, failure)
    except Exception as failed:
        reason = f"{type(failed).__name__}: {failed}".partition("\n")[0]
        logger.error(UNRELEASED, options.stream, reason, options.stream, seconds)


def _open_batches(stream: str) -> QuerySet[StreamBatch]:
    batches = StreamBatch.objects.using(settings().DATABASE)
    return batches.filter(stream__name=stream, state=StreamBatch.State.OPEN)


def _lease_seconds(options: ConsumeOptions) -> float:
    if given := options.options.get("lease"):
        return float(given)
    consumers = Consumer.objects.using(settings().DATABASE).filter(
        channel__name=options.channel, name=options.consumer
    )
    duration = consumers.values_list("lease_duration", flat=True).first()
    return duration.total_seconds() if duration else 0.0


def _seq(offset: "Offset | None", stream: str) -> int:
    from pyspark_pulljobs import stream_options

    return 0 if offset is None else stream_options.seq_of(offset, stream)


def _options(stream: str) -> dict[str, str]:
    rows = Stream.objects.using(settings().DATABASE).filter(name=stream)
    consumers = Consumer.objects.using(settings().DATABASE).select_related("channel")
    consumer = consumers.filter(pk__in=rows.values("consumer_id")).first()
    if consumer is None:
        raise ConfigurationError(f"There is no stream {stream!r}: give its query's option stream.")
    names = {"channel": consumer.channel.name, "consumer": consumer.name, "stream": stream}
    return {"dsn": session.dsn(), **names}


def _start(spark: "SparkSession", options: ConsumeOptions) -> "StreamingQuery":
    from pyspark_pulljobs.handling import COUNTS, Handling

    cores = str(session.count_cores(spark))  # of all executors, not of the driver alone
    source, limit = {"partitions": cores, **options.source()}, settings().MAX_RESULT_BYTES
    handling = Handling(source["dsn"], options.handler, options.form, limit)
    jobs = spark.readStream.format("pulljobs").options(**source).load()
    writing = jobs.mapInArrow(handling, COUNTS).writeStream.format("noop")
    if options.checkpoint:
        writing = writing.option("checkpointLocation", _find_checkpoint(spark, options.checkpoint))
    if options.every is None:
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=f"{options.every} seconds").start()


@contextmanager
def _choose_checkpoint(spark: "SparkSession", options: ConsumeOptions) -> Iterator[str]:
    """Provide the chosen checkpoint, else one in the lake, else a temporary directory.

    The last is used without a lake, or if Spark has no filesystem for it. It is enough, because the
    database has the last ack: after a kill, only batches that were not acked are repeated. Provide
    an empty text if a Spark Connect server has to make the directory.
    """
    lake = settings().LAKE.rstrip("/")
    place = options.checkpoint or (lake and f"{lake}/_streams/{_name_folder(options.stream)}")
    if place and (options.checkpoint or jvm.find_url(spark, place)):
        yield place
    elif remote.is_remote(spark):
        yield ""
    else:
        with TemporaryDirectory(prefix="pulljobs-stream-") as directory:
            yield directory


def _name_folder(stream: str) -> str:
    """Return the name of the directory for a stream's checkpoint, without special characters.

    It ends with a digest, which differs between streams such as `a.b/c` and `a/b.c`.
    """
    digest = hashlib.sha256(stream.encode()).hexdigest()[:8]
    return f"{SPECIAL.sub('.', stream)[:LONGEST_NAME]}-{digest}"


def _find_checkpoint(spark: "SparkSession", checkpoint: str) -> str:
    """Return the checkpoint's URL for Spark's JVM.

    Raise ConfigurationError if the JVM has no filesystem for the URL.
    """
    is_server = remote.is_remote(spark)
    url = jvm.name_url(checkpoint) if is_server else jvm.find_url(spark, checkpoint)
    if url is None:
        package = jvm.HADOOP_PACKAGES.get(checkpoint.partition("://")[0])
        hint = f", or add --conf spark.jars.packages={package}:VERSION" if package else ""
        raise ConfigurationError(
            f"Spark's Java has no filesystem for the checkpoint {checkpoint!r}: name a directory "
            f"with --checkpoint{hint}."
        )
    return url


def _wait_for_failure(query: "StreamingQuery", stopped: threading.Event) -> Exception | None:
    """Wait until the query ends or `stopped` is set, stop it, and return its error or None.

    The error may be that the JVM died. The jobs can be released without it.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import StreamingQueryException

    try:
        while query.isActive and not stopped.is_set():
            query.awaitTermination(POLL_SECONDS)
        query.stop()
        return query.exception()
    except (StreamingQueryException, Py4JError, ConnectionError) as error:
        return error


@contextmanager
def _catch_signals() -> Iterator[threading.Event]:
    """Provide an event that SIGTERM and SIGINT set, instead of ending the process.

    Only the main thread can catch signals. In another thread the event is never set.
    """
    stopped = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stopped
        return
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, lambda *_: stopped.set()) for number in numbers]
    try:
        yield stopped
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _counts(stream: str) -> dict[str, int]:
    """Return the numbers of acked, failed and lost jobs over all acked batches of a stream."""
    names = ("acked", "failed", "lost")
    rows = Stream.objects.using(settings().DATABASE).filter(name=stream)
    return rows.values(*names).first() or dict.fromkeys(names, 0)
