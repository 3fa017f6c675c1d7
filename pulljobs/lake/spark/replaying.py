"""Replay: jobs that the lake remembers, chosen by SQL, are published again.

Each is a new message with one job, to the consumer it was of or to another, and linked to the
original. A job is what its last settlement says; one that was replayed before is left out.
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
from pyspark_pulljobs import replaying

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LOCK: Final = "pulljobs_replay"
OF_MESSAGES: Final = (
    "id AS message_id", "published_at", "priority", "key", "client_message_id", "content_type",
    "headers", "payload_bytes", "payload",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    where: str
    """A predicate over the columns of the archive, and over those of the job's message."""
    to: Consumer | None = None
    """None: to the consumer that each was of."""
    again: bool = False
    """Those, too, that were replayed before."""


class Found(NamedTuple):
    """Jobs alike; `fresh` of them were not replayed before."""

    consumer_id: int
    state: str
    reason: str | None
    jobs: int
    fresh: int


def consumer(name: str) -> Consumer:
    """By channel/consumer, or by its name alone where that tells it."""
    channel, _slash, own = name.rpartition("/")
    rows = Consumer.objects.using(settings().DATABASE).filter(name=own, deleted_at=None)
    found = list(rows.filter(channel__name=channel) if channel else rows)
    if len(found) != 1:
        problem = "no consumer" if not found else "more than one consumer"
        raise ConfigurationError(f"There is {problem} {name!r}: name it as channel/consumer.")
    return found[0]


def count(spark: "SparkSession", choice: Choice) -> list[Found]:
    """What a replay would publish, without publishing anything."""
    chosen = _chosen(spark, choice).select("job_id", "consumer_id", "state", "reason")
    groups = chosen.groupBy("consumer_id", "state", "reason").count().collect()
    fresh: Mapping[tuple[int, str, str | None], int] = {
        (row.consumer_id, row.state, row.reason): row["count"]
        for row in _fresh(chosen, choice)
        .groupBy("consumer_id", "state", "reason")
        .count()
        .collect()
    }
    found = [
        Found(*key, row["count"], fresh.get(key, 0))
        for row in groups
        for key in [(row.consumer_id, row.state, row.reason)]
    ]
    return sorted(found, key=lambda one: (one.consumer_id, one.state, one.reason or ""))


Replayed = tuple[BulkPublish, bool]
"""A publish, and whether it was done before: then nothing was replayed now."""


def replay(spark: "SparkSession", choice: Choice, publish_id: str | None) -> list[Replayed]:
    """One atomic publish for each consumer, in the order of their rows."""
    publish_id = publish_id or f"replay-{uuid4().hex}"
    with _alone():
        chosen = _chosen(spark, choice)
        targets = [choice.to] if choice.to else _targets(chosen)
        return [_replayed(chosen, choice, target, publish_id) for target in targets]


def _replayed(chosen: "DataFrame", choice: Choice, consumer: Consumer, publish_id: str) -> Replayed:
    from pyspark.sql.functions import col, from_json

    if choice.to is None:
        chosen = chosen.where(col("consumer_id") == consumer.pk)
    columns = [part.split()[0] for part in replaying.CHOSEN.split(", ")]
    fresh = _fresh(chosen.select(*columns), choice)
    complete = fresh.mapInArrow(
        partial(replaying.with_payloads, dsn=session.dsn()), replaying.CHOSEN
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


def _chosen(spark: "SparkSession", choice: Choice) -> "DataFrame":
    from pyspark.sql.functions import max_by, struct

    where = tables.location()
    archive = Table(where, "archive").frame(spark).drop("day")
    last = archive.groupBy("job_id").agg(max_by(struct("*"), "id").alias("last")).select("last.*")
    messages = Table(where, "messages").frame(spark).selectExpr(*OF_MESSAGES)
    return last.join(messages, "message_id", "left").where(choice.where)


def _fresh(chosen: "DataFrame", choice: Choice) -> "DataFrame":
    if choice.again:
        return chosen
    target = choice.to.pk if choice.to else None
    return chosen.mapInArrow(
        partial(replaying.unreplayed, dsn=session.dsn(), target=target), chosen.schema
    )


def _targets(chosen: "DataFrame") -> list[Consumer]:
    """Whose the jobs were; LakeError if one is gone."""
    of = sorted(row.consumer_id for row in chosen.select("consumer_id").distinct().collect())
    rows = Consumer.objects.using(settings().DATABASE).select_related("channel")
    there = rows.filter(deleted_at=None).in_bulk(of)
    if gone := [id for id in of if id not in there]:
        raise LakeError(
            f"The consumers of some of these jobs are gone (ids {', '.join(map(str, gone))}): "
            "say with --to who is to have them, or leave them out by consumer_id."
        )
    return [there[id] for id in of]


@contextmanager
def _alone() -> Iterator[None]:
    """Two replays at a time would each take what the other has not committed yet for fresh."""
    with connections[settings().DATABASE].cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(hashtext(%s))", [LOCK])
        if not cursor.fetchone()[0]:
            raise LakeError("Another replay is at work: try again when it is done.")
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(hashtext(%s))", [LOCK])


def shown(found: Found, names: Mapping[int, str]) -> str:
    """In words."""
    reason = f" ({found.reason})" if found.reason else ""
    before = found.jobs - found.fresh
    replayed = f", {before:,} of them replayed before" if before else ""
    who = names.get(found.consumer_id, f"consumer {found.consumer_id}, which is gone")
    return f"{who}: {found.jobs:,} {found.state}{reason}{replayed}"


def names() -> dict[int, str]:
    """Of the consumers, as channel/consumer."""
    rows = Consumer.objects.using(settings().DATABASE).filter(deleted_at=None)
    return {
        id: f"{channel}/{name}"
        for id, channel, name in rows.values_list("id", "channel__name", "name")
    }
