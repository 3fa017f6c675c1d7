"""Replay: jobs of the lake, selected by SQL, are published again.

Each job becomes a new message with one job, for the same consumer or another, and a row links it to
the original. The predicate sees only the last settlement of a job. Jobs that were replayed before
are left out by default.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import uuid4

from django.db import connections

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError, LakeError
from pulljobs.lake.models import BulkPublish
from pulljobs.lake.spark import publishing, session, tables
from pulljobs.lake.spark.publishing import Target
from pulljobs.lake.spark.tables import Table
from pulljobs.models import Consumer
from pyspark_pulljobs import replay_steps

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCK: Final = "pulljobs_replay"
OF_MESSAGES: Final = (
    "id AS message_id", "published_at", "priority", "key", "client_message_id", "content_type",
    "headers", "payload_bytes", "payload",
)  # fmt: skip
"""Columns of the lake's messages that a predicate can name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    where: str
    """Predicate over the columns of the archive and of the job's message."""
    to: Consumer | None = None
    """None: each job's own consumer."""
    again: bool = False
    """Include jobs that were replayed before."""


class ReplayGroup(NamedTuple):
    """Number of selected jobs of one consumer with the same last state and reason."""

    consumer_id: int
    state: str
    reason: str | None
    jobs: int
    fresh: int
    """Number of those that were not replayed before."""


def consumer(name: str) -> Consumer:
    """Return the consumer by its path channel/consumer, or by its name alone if that is unique.

    Raise ConfigurationError if there is none, or more than one.
    """
    channel, _slash, own = name.rpartition("/")
    rows = Consumer.objects.using(settings().DATABASE).filter(name=own, deleted_at=None)
    matches = list(rows.filter(channel__name=channel) if channel else rows)
    if len(matches) != 1:
        problem = "no consumer" if not matches else "more than one consumer"
        raise ConfigurationError(f"There is {problem} {name!r}: name it as channel/consumer.")
    return matches[0]


def count(spark: "SparkSession", options: ReplayOptions) -> list[ReplayGroup]:
    """Count the selected jobs by consumer, state and reason, without publishing any."""
    chosen = _chosen(spark, options).select("job_id", "consumer_id", "state", "reason")
    groups = chosen.groupBy("consumer_id", "state", "reason").count().collect()
    fresh: Mapping[tuple[int, str, str | None], int] = {
        (row.consumer_id, row.state, row.reason): row["count"]
        for row in _fresh(chosen, options)
        .groupBy("consumer_id", "state", "reason")
        .count()
        .collect()
    }
    counts = [
        ReplayGroup(*key, row["count"], fresh.get(key, 0))
        for row in groups
        for key in [(row.consumer_id, row.state, row.reason)]
    ]
    return sorted(counts, key=lambda group: (group.consumer_id, group.state, group.reason or ""))


Replayed = tuple[BulkPublish, bool]
"""A publish, and True if it was done before, so that nothing was replayed now."""


def replay(spark: "SparkSession", options: ReplayOptions, publish_id: str | None) -> list[Replayed]:
    """Publish the selected jobs again, in one atomic publish for each consumer.

    Return the publishes in the order of the consumers' ids, each with True if an earlier replay
    with this `publish_id` did it, so that nothing is published now. By default the id is random.
    Raise LakeError if another replay runs, or if jobs go to their own consumers and one is deleted.
    """
    publish_id = publish_id or f"replay-{uuid4().hex}"
    with _alone():
        chosen = _chosen(spark, options)
        targets = [options.to] if options.to else _targets(chosen)
        return [_replayed(chosen, options, target, publish_id) for target in targets]


def _replayed(
    chosen: "DataFrame", options: ReplayOptions, consumer: Consumer, publish_id: str
) -> Replayed:
    from pyspark.sql.functions import col, from_json

    if options.to is None:
        chosen = chosen.where(col("consumer_id") == consumer.pk)
    columns = [part.split()[0] for part in replay_steps.COLUMNS.split(", ")]
    fresh = _fresh(chosen.select(*columns), options)
    complete = fresh.mapInArrow(
        partial(replay_steps.fill_payloads, dsn=session.dsn()), replay_steps.COLUMNS
    )
    rows = complete.select(
        "payload",
        "content_type",
        from_json("headers", "map<string,string>").alias("headers"),
        "key",
        "priority",
        col("job_id").alias("original_job"),
    )
    target = Target(
        channel=consumer.channel.name,
        consumer=consumer.name,
        on_bad_row="reject",
        was_accepted=True,
    )
    return publishing.publish(rows, target, f"{publish_id}/{consumer.pk}")


def _chosen(spark: "SparkSession", options: ReplayOptions) -> "DataFrame":
    from pyspark.sql.functions import max_by, struct

    location = tables.location()
    archive = Table(location, "archive").frame(spark).drop("day")
    last = archive.groupBy("job_id").agg(max_by(struct("*"), "id").alias("last")).select("last.*")
    messages = Table(location, "messages").frame(spark).selectExpr(*OF_MESSAGES)
    return last.join(messages, "message_id", "left").where(options.where)


def _fresh(chosen: "DataFrame", options: ReplayOptions) -> "DataFrame":
    if options.again:
        return chosen
    target = options.to.pk if options.to else None
    return chosen.mapInArrow(
        partial(replay_steps.drop_replayed, dsn=session.dsn(), target=target), chosen.schema
    )


def _targets(chosen: "DataFrame") -> list[Consumer]:
    """Return the consumers of the selected jobs, or raise LakeError if one is deleted."""
    consumer_ids = sorted(
        row.consumer_id for row in chosen.select("consumer_id").distinct().collect()
    )
    rows = Consumer.objects.using(settings().DATABASE).select_related("channel")
    there = rows.filter(deleted_at=None).in_bulk(consumer_ids)
    if gone := [id for id in consumer_ids if id not in there]:
        raise LakeError(
            f"The consumers of some of these jobs are gone (ids {', '.join(map(str, gone))}): "
            "name a consumer with --to, or exclude them by consumer_id."
        )
    return [there[id] for id in consumer_ids]


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of replays within the block, or raise LakeError if another replay holds it.

    Two replays at a time could publish a job twice.
    """
    with connections[settings().DATABASE].cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(hashtext(%s))", [LOCK])
        if not cursor.fetchone()[0]:
            raise LakeError("Another replay is at work: try again when it is done.")
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(hashtext(%s))", [LOCK])


def describe(group: ReplayGroup, paths: Mapping[int, str]) -> str:
    """Return a line of text about a group. `paths` has channel/consumer by consumer id."""
    reason = f" ({group.reason})" if group.reason else ""
    before = group.jobs - group.fresh
    replayed = f", {before:,} of them replayed before" if before else ""
    path = paths.get(group.consumer_id, f"consumer {group.consumer_id}, which is deleted")
    return f"{path}: {group.jobs:,} {group.state}{reason}{replayed}"


def consumer_paths() -> dict[int, str]:
    """Return the paths channel/consumer by id, without deleted consumers."""
    rows = Consumer.objects.using(settings().DATABASE).filter(deleted_at=None)
    return {
        id: f"{channel}/{name}"
        for id, channel, name in rows.values_list("id", "channel__name", "name")
    }
