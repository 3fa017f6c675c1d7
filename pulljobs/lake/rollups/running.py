"""Run of the rollup, which counts the hours in which the lake has new rows.

An hour is counted again from all of its rows, so a repeated run has the same result. Days and
months are merged from the hours, including those of earlier runs.
"""

import pickle
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from os import SEEK_END
from tempfile import TemporaryFile
from typing import IO, Final

from django.db import connections, transaction
from django.db.models import Case, Min, When
from django.db.models.functions import Now

from pulljobs.conf import settings
from pulljobs.errors import LakeError
from pulljobs.lake import ledger
from pulljobs.lake.models import BulkPublish, LakeRun, PublishedPart, RollupRun
from pulljobs.lake.models.rollups import Period
from pulljobs.lake.rollups import hours, merging, rollup_rows
from pulljobs.lake.rollups.counting import Counter, Sources
from pulljobs.lake.rollups.counts import Rows
from pulljobs.lake.rollups.hours import TableSnapshot
from pulljobs.lake.rollups.published import Addressed, Audience, Subscription
from pulljobs.lake.rollups.spark_counter import SparkCounter
from pulljobs.lake.spark import progress, session, tables
from pulljobs.lake.spark.export_run import Sessions
from pulljobs.lake.spark.tables import Table
from pulljobs.models import Consumer

LOCK: Final = 0x726F6C6C  # "roll"
"""Advisory lock of the process that writes rollups."""
LOCK_TIMEOUT: Final = "60s"
"""Longest wait for that lock: its holder writes for seconds, unless its process is frozen."""
MOST_GROUPS: Final = "spark.sql.objectHashAggregate.sortBased.fallbackThreshold"
"""Spark sorts all rows where a task has more groups than this, by default 128."""
MOST_HERE: Final = 20_000_000
"""Number of rows that this process counts. More take minutes on one core, and memory for deaths."""
FOREVER: Final = datetime.max.replace(tzinfo=UTC)
LONGEST: Final = {Period.HOUR: timedelta(days=1), Period.DAY: timedelta(days=31)}
"""Longest time that rows of a period are merged into."""
Month = dict[Period, Rows]


@dataclass(slots=True)
class RolledUp:
    """Result of a run of the rollup. All counts are 0 if the lake had nothing new."""

    settlements: int = 0
    """Settlements in the hours that were counted."""
    delivered: int = 0
    dead: int = 0
    published: int = 0
    """Messages that were published to consumers in these hours, once for each consumer."""
    hours: int = 0
    """Number of hours that were counted."""
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(Period.values, 0))
    """Number of rollups that were written, by period."""
    known_until: datetime | None = None
    seconds: float = 0.0

    def add(self, month: Month) -> None:
        for period, rows in month.items():
            self.rows[period] += len(rows)
        hours = month[Period.HOUR]
        self.hours += len({key.starts_at for key in hours})
        for counts in hours.values():
            self.delivered += counts.delivered
            self.dead += counts.dead
            self.published += counts.published
        self.settlements = self.delivered + self.dead


def roll_up(sessions: Sessions, *, recount: bool = False, always_spark: bool = False) -> RolledUp:
    """Count the hours with new rows, or with `recount` all hours of the lake.

    Everything is written in one transaction. Raise LakeError if another run has ended since this
    one began. A Spark session is opened only for many rows, if `always_spark`, or if the package
    `datasketches` is not installed.
    """
    started = time.monotonic()
    run = _RollupRun.prepared(settings().DATABASE, tables.location(), recount)
    rolled_up = RolledUp(known_until=run.known_until)
    if run.is_due:
        with _open_counter(sessions, run.rows, always_spark) as counter, TemporaryFile() as spool:
            for month in run.months(counter):
                pickle.dump(month, spool)
                rolled_up.add(month)
            run.save(_read(spool), rolled_up, time.monotonic() - started)
    rolled_up.seconds = time.monotonic() - started
    return rolled_up


@contextmanager
def _open_counter(sessions: Sessions, rows: int, always_spark: bool) -> Iterator[Counter]:
    """Provide a counter: of this process for at most `MOST_HERE` rows, else of Spark.

    The counter of this process needs the library of sketches, `datasketches`.
    """
    if rows <= MOST_HERE and not always_spark and find_spec("datasketches"):
        from pulljobs.lake.rollups.arrow_counter import ArrowCounter

        yield ArrowCounter()
        return
    with sessions(rows=rows) as spark, progress.reporting(spark, "rollup"):
        spark.conf.set(MOST_GROUPS, "10000")
        session.tune(spark, rows)
        yield SparkCounter(spark)


@dataclass(frozen=True, slots=True)
class _RollupRun:
    using: str
    location: str
    before: RollupRun | None
    """Last run, or None if it counted another lake or all hours are recounted."""
    last: int | None
    archive: TableSnapshot
    messages: TableSnapshot
    known_until: datetime

    @classmethod
    def prepared(cls, using: str, location: str, recount: bool) -> "_RollupRun":
        until = ledger.read_known_until(using, location)
        last = RollupRun.objects.using(using).first()
        before = last if last and last.location == location and not recount else None
        archive, messages = (
            TableSnapshot.take(Table(location, name)) for name in ("archive", "messages")
        )
        return cls(using, location, before, last.pk if last else None, archive, messages, until)

    @property
    def is_due(self) -> bool:
        if self.before is None:
            return bool(self.archive.files or self.messages.files)
        known = (self.before.archive_run, self.before.messages_run)
        return (self.archive.last_run, self.messages.last_run) != known

    @property
    def rows(self) -> int:
        """Number of rows to read, as an estimate: all of the days with new or rewritten files."""
        before = self.before
        runs = (before.archive_run, before.messages_run) if before else (-1, -1)
        total = 0
        for snapshot, run in zip((self.archive, self.messages), runs, strict=True):
            days = {file.day for file in (*snapshot.since(run), *snapshot.rewritten)}
            total += sum(file.rows for file in snapshot.files if file.day in days)
        return total

    def months(self, counter: Counter) -> Iterator[Month]:
        audience = Audience(_subscriptions(self.using), _addressed(self.using))
        for touched in hours.by_month(self._touched(counter)):
            sources = Sources.choose(touched, self.archive, self.messages)
            counted = counter.count(sources, audience)
            if not counted:
                continue
            days = {hours.day_of(hour) for hour in touched}
            of_days = self._stored(Period.HOUR, days, hours.day_of, touched) | counted
            month = {hours.month_of(day) for day in days}
            other_days = self._stored(Period.DAY, month, hours.month_of, days)
            by_day, by_month = merging.merged(
                counter,
                [
                    merging.grouped(of_days, hours.day_of),
                    merging.grouped(other_days | of_days, hours.month_of),
                ],
            )
            yield {Period.HOUR: counted, Period.DAY: by_day, Period.MONTH: by_month}

    def save(self, months: Iterable[Month], counted: RolledUp, seconds: float) -> None:
        """Write the rollups and the row of this run in one transaction.

        Raise LakeError, and write nothing, if another run has ended since this one began.
        """
        with transaction.atomic(using=self.using):
            with connections[self.using].cursor() as cursor:
                cursor.execute("SELECT set_config('lock_timeout', %s, true)", [LOCK_TIMEOUT])
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
            last = RollupRun.objects.using(self.using).first()
            if (last.pk if last else None) != self.last:
                raise LakeError(
                    "Another rollup ended first, and nothing was written: run the command again."
                )
            for month in months:
                for period, rows in month.items():
                    rollup_rows.save(self.using, period, rows)
            RollupRun.objects.using(self.using).create(
                location=self.location,
                archive_run=self.archive.last_run,
                messages_run=self.messages.last_run,
                known_until=self.known_until,
                started_at=Now() - timedelta(seconds=seconds),
                finished_at=Now(),
                settlements=counted.settlements,
                hours=counted.hours,
            )

    def _touched(self, counter: Counter) -> set[datetime]:
        if self.before is None:
            settled_at = hours.list_ranges(self.archive.files, "settled_at")
            published_at = hours.list_ranges(self.messages.files, "published_at")
            return hours.between(settled_at) | hours.between(published_at)
        settled, published = self.before.archive_run, self.before.messages_run
        return self._later_hours(counter, self.archive, settled, "settled") | self._later_hours(
            counter, self.messages, published, "published"
        )

    def _later_hours(
        self, counter: Counter, snapshot: TableSnapshot, run: int, event: str
    ) -> set[datetime]:
        """Return the hours with rows that were exported after `run`.

        `event` is "settled" or "published". The Delta log has the first and the last time of each
        new file. In rewritten files, transaction numbers identify the rows. An hour too many does
        no harm: it is counted once more.
        """
        if snapshot.last_run == run:
            return set()
        later = hours.between(hours.list_ranges(snapshot.since(run), f"{event}_at"))
        low_xid = self._low_xid(run)
        if rewritten := snapshot.rewritten_since(f"{event}_xid", low_xid):
            later |= counter.list_hours(snapshot.table, rewritten, event, low_xid)
        return later

    def _low_xid(self, run: int) -> int:
        """Return a number below which no transaction has rows that were exported after `run`.

        If a rebase has renumbered transactions since, rows exported before may be above it, too.
        """
        runs = LakeRun.objects.using(self.using).filter(location=self.location, pk__gte=run)
        ends = Case(When(pk=run, then="high_xid"), default="low_xid")
        return runs.aggregate(low=Min(ends))["low"] or 0

    def _stored(
        self,
        period: Period,
        wholes: set[datetime],
        whole: Callable[[datetime], datetime],
        counted: set[datetime],
    ) -> Rows:
        """Return the counts of earlier runs that belong to the longer periods in `wholes`.

        `whole` returns the start of the longer period for a time. Rollups that this run counts
        again, which start at a time in `counted`, are left out.
        """
        return {
            key: counts
            for since in wholes
            for key, counts in rollup_rows.load(
                self.using, period, since, since + LONGEST[period], counted
            ).items()
            if whole(key.starts_at) == since
        }


def _read(spool: IO[bytes]) -> Iterator[Month]:
    """Yield the months that were pickled to the file, in their order."""
    end = spool.seek(0, SEEK_END)
    spool.seek(0)
    while spool.tell() < end:
        yield pickle.load(spool)


def _subscriptions(using: str) -> list[Subscription]:
    return [
        Subscription(
            consumer.pk, consumer.channel_id, consumer.created_at, consumer.deleted_at or FOREVER
        )
        for consumer in Consumer.objects.using(using).only("channel_id", "created_at", "deleted_at")
    ]


def _addressed(using: str) -> list[Addressed]:
    """Return the finished bulk publishes to one consumer each, with their numbers of messages.

    A chunked publish has an entry for each of its partitions. Old micro-batches of a sink are
    missing, because the ledger forgets them.
    """
    alone = BulkPublish.objects.using(using).filter(only_consumer__isnull=False, messages__gt=0)
    parts = PublishedPart.objects.using(using).filter(publish__in=alone)
    columns = ("only_consumer_id", "channel_id", "settled_at", "messages")
    part_columns = ("publish__only_consumer_id", "publish__channel_id", "published_at", "messages")
    atomic = alone.filter(mode=BulkPublish.Mode.ATOMIC, state=BulkPublish.State.DONE)
    return [
        *(Addressed(*row) for row in atomic.values_list(*columns)),
        *(Addressed(*row) for row in parts.values_list(*part_columns)),
    ]
