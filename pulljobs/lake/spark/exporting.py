"""The export: what transactions wrote that ended since the last run, once, whatever is cut off.

A run freezes its window in the ledger, writes files that no reader sees, moves them to their
days, names them in the Delta log together with the run's number, and is done in the ledger. The
log decides: the next run removes the files of one that it does not know, and writes them again.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from adbc_driver_postgresql import dbapi
from deltalake.exceptions import DeltaError
from django.db import connections

from pulljobs.conf import settings
from pulljobs.engine.telemetry import emit
from pulljobs.errors import ConfigurationError, LakeError
from pulljobs.lake import ledger
from pulljobs.lake.ledger import Owner
from pulljobs.lake.models import LakeRun
from pulljobs.lake.spark import files, progress, session, slices, tables
from pulljobs.lake.spark.tables import Table
from pulljobs.lake.telemetry import LakeExported
from pulljobs.models import Channel, Consumer
from pyspark_pulljobs import writing
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.selecting import ADBC
from pyspark_pulljobs.writing import File, Names, Order, Slice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Sessions = Callable[[], AbstractContextManager["SparkSession"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What goes to the lake of the payloads, and how rows are read."""

    payload_cap: int | None = None
    """Bytes; larger payloads stay behind. None: all do."""
    channels: tuple[str, ...] = ()
    """Whose payloads go; none: those of all."""
    reader: str = ADBC


@dataclass(slots=True)
class Exported:
    """What one call brought to the lake, in one run or, after a crash, two."""

    runs: list[int] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    bytes: int = 0
    seconds: float = 0.0
    resumed: bool = False
    held_back_by: str = ""
    """Who has had a transaction open for too long."""

    def merge(self, later: "Exported") -> None:
        self.runs += later.runs
        self.bytes += later.bytes
        self.seconds += later.seconds
        self.resumed |= later.resumed
        self.held_back_by = later.held_back_by
        for table, count in later.rows.items():
            self.rows[table] += count

    def add(self, made: LakeRun) -> None:
        self.runs.append(made.pk)
        self.bytes += made.bytes
        for table, count in made.rows.items():
            self.rows[table] += count


def export(choice: Choice, sessions: Sessions, *, always_spark: bool = False) -> Exported:
    """End the run that was cut off, if one was, and bring what is new.

    A session is only opened where there are several slices, or `always_spark`. LakeError where
    somebody else exports, the database is another one than the ledger tells of, or rows can't be
    read or written: the next run may fare better.
    """
    using, where = settings().DATABASE, tables.location()
    options = _options(using, choice)
    session.share_password()
    exported, started = Exported(), time.monotonic()
    with _told(where), ledger.owned(using) as owner:
        run = _Run(using, where, choice.reader, owner, sessions, always_spark)
        _check_history(using, where)
        if (cut_off := ledger.open_run(using)) is not None:
            _check_place(cut_off, where)
            exported.resumed = True
            exported.add(run.end(cut_off, was_cut_off=True))
        last = ledger.last_run(using, where)
        low = last.high_xid if last else 0
        if _is_anything_new(using, low):
            exported.add(run.end(ledger.begin(using, where, low, options)))
    exported.seconds = time.monotonic() - started
    return exported


@contextmanager
def _told(where: str) -> Iterator[None]:
    """Raise what reading from PostgreSQL and writing to the lake may raise as a LakeError."""
    try:
        yield
    except (dbapi.Error, DeltaError, OSError, pa.ArrowException) as error:
        told = str(error).strip().partition("\n")[0]
        raise LakeError(f"The export to {where} was cut off: {told}") from error


def _check_history(using: str, where: str) -> None:
    """LakeError if ledger and lake do not tell of one history, or other transactions count."""
    last, now = ledger.last_run(using, where), ledger.horizon(using)
    if newest_run(where) > (last.pk if last else 0):
        raise LakeError(
            "The lake has runs that this database knows nothing of: it is another one, or an older "
            "one, or the lake was moved. `pulljobs lake rebase` goes on from here."
        )
    if last is None:
        return
    if last.system_identifier != now.system_identifier or last.high_xid > now.next_xid:
        raise LakeError(
            "This database is not the one that the lake was exported from, or went back in time: "
            "its transactions count differently. `pulljobs lake rebase` goes on from here."
        )


def newest_run(where: str) -> int:
    """That the lake knows of; 0: it is empty."""
    return max(Table(where, name).last_run() for name in TABLES)


def _check_place(cut_off: LakeRun, where: str) -> None:
    if cut_off.location != where:
        raise LakeError(
            f"Run {cut_off.pk} to {cut_off.location} was cut off: export there once more, or "
            "`manage.py pulljobs lake rebase` after the files were moved."
        )


def _is_anything_new(using: str, low: int) -> bool:
    window = LakeRun(low_xid=low, high_xid=max(low, ledger.horizon(using).xid))
    return slices.is_any(using, window)


def _options(using: str, choice: Choice) -> dict[str, object]:
    if not choice.channels:
        return {"payload_cap": choice.payload_cap, "channel_ids": None}
    known = dict(
        Channel.objects.using(using).filter(name__in=choice.channels).values_list("name", "pk")
    )
    if missing := sorted(set(choice.channels) - set(known)):
        raise ConfigurationError(f"There is no channel {missing[0]!r}.")
    return {"payload_cap": choice.payload_cap, "channel_ids": sorted(known.values())}


@dataclass(frozen=True, slots=True)
class _Run:
    """The steps of a run, each of which may be the last before a crash."""

    using: str
    where: str
    reader: str
    owner: Owner
    sessions: Sessions
    always_spark: bool

    def end(self, made: LakeRun, *, was_cut_off: bool = False) -> LakeRun:
        """From wherever it was cut off."""
        known = [table for table in map(self._table, TABLES) if table.last_run() >= made.pk]
        left = [table for table in map(self._table, TABLES) if table.name not in _names_of(known)]
        if was_cut_off:
            files.clean(self.where, left, made.pk)
        wrote = self._written(made, _names_of(left))
        for table in left:
            self._publish(table, made.pk, [file for file in wrote if file.table == table.name])
        rows, size = files.sums(wrote, known, made.pk)
        self.owner.check()
        ledger.end(self.using, made, rows, size)
        files.remove_temporary(self.where)
        made.refresh_from_db(using=self.using)
        emit(LakeExported(rows, size))
        return made

    def _table(self, name: str) -> Table:
        return Table(self.where, name)

    def _written(self, made: LakeRun, names: Sequence[str]) -> list[File]:
        """Every row of the window, counted by PostgreSQL meanwhile."""
        if not names:
            return []
        with ThreadPoolExecutor(1) as aside:
            expected = aside.submit(_counted, self.using, made)
            wrote = self._write(made, names)
        for name in names:
            rows, there = sum(file.rows for file in wrote if file.table == name), expected.result()
            if rows != there[name]:
                raise LakeError(
                    f"Run {made.pk} wrote {rows:,} rows of {name}, PostgreSQL has "
                    f"{there[name]:,}: nothing was published, run it again."
                )
        return wrote

    def _write(self, made: LakeRun, names: Sequence[str]) -> list[File]:
        """By this process, where there are few rows, else by Spark's tasks."""
        samples = slices.sampled(self.using, made)
        rows = sum(samples[name].rows for name in names)
        folder, names_of = files.temporary(made.pk), _registry(self.using)
        order = Order(session.dsn(), self.reader, self.where, folder, names_of)
        plan = partial(slices.planned, self.using, made, samples, names)
        if rows <= slices.FEWEST and not self.always_spark:
            return _written_here(order, plan(1))
        with self.sessions() as spark, progress.shown(spark, "export", rows):
            planned = plan(spark.sparkContext.defaultParallelism)
            tasks = spark.sparkContext.parallelize(planned, len(planned))
            return tasks.mapPartitions(partial(writing.write, order)).collect()

    def _publish(self, table: Table, run: int, wrote: Sequence[File]) -> None:
        if wrote:
            names = files.moved(table, self.where, wrote, run)
            self.owner.check()
            table.commit(run, wrote, names)


def _written_here(order: Order, planned: Sequence[Slice]) -> list[File]:
    try:
        return list(writing.write(order, planned))
    except ConfigurationError as error:
        # Not the settings: Django has a connection by them.
        raise LakeError(str(error)) from error


def _counted(using: str, made: LakeRun) -> dict[str, int]:
    try:
        return slices.counted(using, made)
    finally:
        connections.close_all()  # this thread's


def give_up(using: str, where: str, cut_off: LakeRun) -> None:
    """Forget a run; what the log has of it stays in the lake."""
    unknown = [Table(where, name) for name in TABLES]
    files.clean(where, [one for one in unknown if one.last_run() < cut_off.pk], cut_off.pk)
    cut_off.delete(using=using)


def _names_of(some: Iterable[Table]) -> list[str]:
    return [table.name for table in some]


def _registry(using: str) -> dict[str, Names]:
    """Names by id, also of what was deleted but has its row still."""
    channels = dict(Channel.objects.using(using).values_list("pk", "name"))
    consumers = Consumer.objects.using(using).values_list("pk", "channel_id", "name")
    return {
        "archive": {pk: (channels[channel], name) for pk, channel, name in consumers},
        "messages": {pk: (name,) for pk, name in channels.items()},
    }
