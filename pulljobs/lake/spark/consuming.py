"""Running a function over a consumer's jobs on Spark, and giving back what a query left behind."""

import logging
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.lake.models import Stream
from pulljobs.lake.spark import failures, session
from pulljobs.models import Consumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from pulljobs.lake.spark.checkpoints import Offset

logger = logging.getLogger("pulljobs.lake")

LOOK_SECONDS: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Consuming:
    """What to run over whose jobs."""

    channel: str
    consumer: str
    handler: str
    """`module:function`, that can be imported where tasks run."""
    form: str = "pandas"
    stream: str
    checkpoint: str
    every: float | None = None
    """Seconds between the starts of batches; None: what is there now, and no more."""
    options: Mapping[str, str]
    """More of the source's, such as `maxRowsPerBatch`."""

    def source(self) -> dict[str, str]:
        return {
            "dsn": session.dsn(),
            "channel": self.channel,
            "consumer": self.consumer,
            "stream": self.stream,
            **self.options,
        }


def default_checkpoint(stream: str) -> str:
    """Beside the lake; ConfigurationError where there is none."""
    if not settings().LAKE:
        raise ConfigurationError("Name a --checkpoint: PULLJOBS['LAKE'] is not set.")
    return f"{settings().LAKE.rstrip('/')}/_streams/{stream.replace('/', '.')}"


def run(spark: "SparkSession", wanted: Consuming) -> dict[str, int]:
    """Until it is done, or SIGTERM or SIGINT; then nothing is held. Counts of what this run did.

    Where the query failed, the deliveries of the batch that it was at count.
    """
    from pyspark_pulljobs.handling import resolve

    resolve(wanted.handler)
    before = _counts(wanted.stream)
    with _stopped() as stopped:
        error = _failure(_started(spark, wanted), stopped)
    _release_after(error, wanted)
    if error is not None:
        raise error
    after = _counts(wanted.stream)
    return {name: after[name] - before[name] for name in after}


def release(
    stream: str, checkpoint: str | None = None, failure: str | None = None
) -> dict[str, int]:
    """Give back what a stopped query holds; what its checkpoint says is done is acked first.

    After a failure of the query the batches that it had begun expire: else one that makes it fail
    would come again for ever. StreamTaken while it runs, ConfigurationError for a stream that
    nobody knows.
    """
    from pulljobs.lake.spark import checkpoints
    from pyspark_pulljobs import streams
    from pyspark_pulljobs.stream import Stream as Owner

    session.share_password()  # which no session of Spark's may have done in this process
    owner = Owner(streams.read(_options(stream)))
    try:
        if checkpoint is None:
            return {"released": owner.give_back()}
        owner.ack(_seq(checkpoints.done(checkpoint), stream))
        begun = 0 if failure is None else _seq(checkpoints.begun(checkpoint), stream)
        return {"released": owner.give_back(begun, failure)}
    finally:
        owner.leave()


def _release_after(error: Exception | None, wanted: Consuming) -> None:
    """What fails here must not take the place of why the query failed, nor of what it did."""
    from pulljobs.lake.spark import checkpoints

    failure = None if error is None else failures.line_of(error)
    try:
        if checkpoints.is_there(wanted.checkpoint):
            release(wanted.stream, wanted.checkpoint, failure)
    except Exception as failed:
        why = f"{type(failed).__name__}: {failed}".partition("\n")[0]
        told = "Jobs that stream %s held are not given back (%s): run `pulljobs lake release %s`."
        logger.error(told, wanted.stream, why, wanted.stream)


def _seq(offset: "Offset | None", stream: str) -> int:
    from pyspark_pulljobs import streams

    return 0 if offset is None else streams.seq_of(offset, stream)


def _options(stream: str) -> dict[str, str]:
    rows = Stream.objects.using(settings().DATABASE).filter(name=stream)
    consumers = Consumer.objects.using(settings().DATABASE).select_related("channel")
    consumer = consumers.filter(pk__in=rows.values("consumer_id")).first()
    if consumer is None:
        raise ConfigurationError(f"There is no stream {stream!r}.")
    names = {"channel": consumer.channel.name, "consumer": consumer.name, "stream": stream}
    return {"dsn": session.dsn(), **names}


def _started(spark: "SparkSession", wanted: Consuming) -> "StreamingQuery":
    from pyspark_pulljobs.handling import COUNTS, Handling

    source, limit = wanted.source(), settings().MAX_RESULT_BYTES
    handling = Handling(source["dsn"], wanted.handler, wanted.form, limit)
    jobs = spark.readStream.format("pulljobs").options(**source).load()
    writing = jobs.mapInArrow(handling, COUNTS).writeStream.format("noop")
    writing = writing.option("checkpointLocation", wanted.checkpoint)
    if wanted.every is None:
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=f"{wanted.every} seconds").start()


def _failure(query: "StreamingQuery", stopped: threading.Event) -> Exception | None:
    """Of a query once it has ended, by itself or because it is to stop."""
    from pyspark.errors import StreamingQueryException

    try:
        while query.isActive and not stopped.is_set():
            query.awaitTermination(LOOK_SECONDS)
    except StreamingQueryException as error:
        return error
    query.stop()
    return query.exception()


@contextmanager
def _stopped() -> Iterator[threading.Event]:
    """Set by the signals that ask a process to end."""
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
    """Of all its batches that were acked."""
    names = ("acked", "failed", "lost")
    streams = Stream.objects.using(settings().DATABASE).filter(name=stream)
    return streams.values(*names).first() or dict.fromkeys(names, 0)
