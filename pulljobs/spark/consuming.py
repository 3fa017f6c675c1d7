"""Running a function over a consumer's jobs on Spark, and giving back what a query left behind."""

import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from django.db.models import Sum

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError
from pulljobs.models import Consumer, Stream, StreamBatch
from pulljobs.spark import checkpoints, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

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
    """Until it is done, or SIGTERM or SIGINT; then nothing is held. Counts of what this run did."""
    from pyspark_pulljobs.handling import resolve

    resolve(wanted.handler)
    before = _counts(wanted.stream)
    with _stopped() as stopped:
        query = _started(spark, wanted)
        while query.isActive and not stopped.is_set():
            query.awaitTermination(LOOK_SECONDS)
        query.stop()
    if Path(wanted.checkpoint).is_dir():
        release(wanted.stream, wanted.checkpoint)
    if (error := query.exception()) is not None:
        raise error
    after = _counts(wanted.stream)
    return {name: after[name] - before[name] for name in after}


def release(stream: str, checkpoint: str | None = None) -> dict[str, int]:
    """Give back what a stopped query holds; what its checkpoint says is done is acked first.

    StreamTaken while it runs, ConfigurationError for a stream that nobody knows.
    """
    from pyspark_pulljobs import streams
    from pyspark_pulljobs.stream import Stream as Owner

    owner = Owner(streams.read(_options(stream)))
    try:
        if checkpoint and (done := checkpoints.done(checkpoint)) is not None:
            owner.ack(streams.seq_of({"stream": done[0], "seq": done[1]}, stream))
        return {"released": owner.give_back()}
    finally:
        owner.leave()


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

    handling = Handling(wanted.source()["dsn"], wanted.handler, wanted.form)
    jobs = spark.readStream.format("pulljobs").options(**wanted.source()).load()
    writing = jobs.mapInArrow(handling, COUNTS).writeStream.format("noop")
    writing = writing.option("checkpointLocation", wanted.checkpoint)
    if wanted.every is None:
        return writing.trigger(availableNow=True).start()
    return writing.trigger(processingTime=f"{wanted.every} seconds").start()


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
    """Of the batches that are remembered and acked."""
    names = ("acked", "failed", "lost")
    rows = StreamBatch.objects.using(settings().DATABASE).filter(stream__name=stream)
    sums: dict[str, Any] = rows.aggregate(**{name: Sum(name) for name in names})
    return {name: sums[name] or 0 for name in names}
