"""Export of the rows of transactions that ended since the last run, exactly once after any crash.

A run freezes its window in the ledger, writes files that no reader sees, moves them to their
days, commits them to the Delta log with the run's number, and marks itself done in the ledger. The
log decides: the next run removes files of a run that is not in the log, and writes them again.
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
from pyspark_pulljobs.writing import ExportedFile, ExportParameters, Names, Slice

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Sessions = Callable[[], AbstractContextManager["SparkSession"]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Payloads to export, and the way rows are read."""

    payload_cap: int | None = None
    """Bytes above which a payload is not exported; None: no payloads."""
    channels: tuple[str, ...] = ()
    """Channels whose payloads are exported; empty: all."""
    reader: str = ADBC


@dataclass(slots=True)
class Exported:
    """Result of one call, of one run or, after a crash, two."""

    runs: list[int] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    bytes: int = 0
    seconds: float = 0.0
    resumed: bool = False
    held_back_by: str = ""
    """Process with a transaction that has been open for too long."""

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


def export(options: ExportOptions, sessions: Sessions, *, always_spark: bool = False) -> Exported:
    """Complete an interrupted run, if there is one, and export the new rows.

    A Spark session is opened only for several slices, or if `always_spark`. Raise LakeError if
    another process exports, if the database is not the one of the ledger, or if rows cannot be read
    or written; a later run may succeed.
    """
    using, where = settings().DATABASE, tables.location()
    stored = _stored_options(using, options)
    session.share_password()
    exported, started = Exported(), time.monotonic()
    with _raising_lake_errors(where), ledger.hold_lock(using) as owner:
        run = _ExportRun(using, where, options.reader, owner, sessions, always_spark)
        _check_history(using, where)
        if (interrupted := ledger.find_open_run(using)) is not None:
            _check_place(interrupted, where)
            exported.resumed = True
            exported.add(run.end(interrupted, is_interrupted=True))
        last = ledger.find_last_run(using, where)
        low = last.high_xid if last else 0
        if _is_anything_new(using, low):
            exported.add(run.end(ledger.begin_run(using, where, low, stored)))
    exported.seconds = time.monotonic() - started
    return exported


@contextmanager
def _raising_lake_errors(where: str) -> Iterator[None]:
    """Turn errors of PostgreSQL, files and the Delta log into a LakeError."""
    try:
        yield
    except (dbapi.Error, DeltaError, OSError, pa.ArrowException) as error:
        line = str(error).strip().partition("\n")[0]
        raise LakeError(f"The export to {where} was interrupted: {line}") from error


def _check_history(using: str, where: str) -> None:
    """Raise LakeError unless the ledger, the lake and the cluster share one history."""
    last, now = ledger.find_last_run(using, where), ledger.read_horizon(using)
    if newest_run(where) > (last.pk if last else 0):
        raise LakeError(
            "The lake has runs that this database does not know: it is another or an older "
            "database, or the lake was moved. Continue with `pulljobs lake rebase`."
        )
    if last is None:
        return
    if last.system_identifier != now.system_identifier or last.high_xid > now.next_xid:
        raise LakeError(
            "The lake was exported from another database, or this one was restored from a backup: "
            "its transactions are numbered differently. Continue with `pulljobs lake rebase`."
        )


def newest_run(where: str) -> int:
    """Return the number of the last export in the lake, or 0 for an empty lake."""
    return max(Table(where, name).last_run() for name in TABLES)


def _check_place(interrupted: LakeRun, where: str) -> None:
    if interrupted.location != where:
        raise LakeError(
            f"Run {interrupted.pk} to {interrupted.location} was interrupted: export there again, "
            "or run `manage.py pulljobs lake rebase` if the files were moved."
        )


def _is_anything_new(using: str, low: int) -> bool:
    window = LakeRun(low_xid=low, high_xid=max(low, ledger.read_horizon(using).xid))
    return slices.has_rows(using, window)


def _stored_options(using: str, options: ExportOptions) -> dict[str, object]:
    if not options.channels:
        return {"payload_cap": options.payload_cap, "channel_ids": None}
    known = dict(
        Channel.objects.using(using).filter(name__in=options.channels).values_list("name", "pk")
    )
    if missing := sorted(set(options.channels) - set(known)):
        raise ConfigurationError(f"There is no channel {missing[0]!r}.")
    return {"payload_cap": options.payload_cap, "channel_ids": sorted(known.values())}


@dataclass(frozen=True, slots=True)
class _ExportRun:
    """Steps of a run, each of which may be the last before a crash."""

    using: str
    where: str
    reader: str
    owner: Owner
    sessions: Sessions
    always_spark: bool

    def end(self, made: LakeRun, *, is_interrupted: bool = False) -> LakeRun:
        """Complete a run from where it was interrupted; return it."""
        known = [table for table in map(self._table, TABLES) if table.last_run() >= made.pk]
        left = [table for table in map(self._table, TABLES) if table.name not in _names_of(known)]
        if is_interrupted:
            files.clean(self.where, left, made.pk)
        wrote = self._written(made, _names_of(left))
        for table in left:
            self._publish(table, made.pk, [file for file in wrote if file.table == table.name])
        rows, size = files.sum_files(wrote, known, made.pk)
        self.owner.check()
        ledger.end_run(self.using, made, rows, size)
        files.remove_temporary(self.where)
        made.refresh_from_db(using=self.using)
        emit(LakeExported(rows, size))
        return made

    def _table(self, name: str) -> Table:
        return Table(self.where, name)

    def _written(self, made: LakeRun, names: Sequence[str]) -> list[ExportedFile]:
        """Write every row of the window, and check the number that PostgreSQL counts."""
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
                    f"{there[name]:,}: nothing was exported, run it again."
                )
        return wrote

    def _write(self, made: LakeRun, names: Sequence[str]) -> list[ExportedFile]:
        """Write few rows in this process, many in Spark's tasks."""
        samples = slices.sample(self.using, made)
        rows = sum(samples[name].rows for name in names)
        folder, names_of = files.name_temporary(made.pk), _registry(self.using)
        parameters = ExportParameters(session.dsn(), self.reader, self.where, folder, names_of)
        plan = partial(slices.plan, self.using, made, samples, names)
        if rows <= slices.MIN_ROWS and not self.always_spark:
            return _written_here(parameters, plan(1))
        with self.sessions() as spark, progress.reporting(spark, "export", rows):
            planned = plan(spark.sparkContext.defaultParallelism)
            tasks = spark.sparkContext.parallelize(planned, len(planned))
            return tasks.mapPartitions(partial(writing.write, parameters)).collect()

    def _publish(self, table: Table, run: int, wrote: Sequence[ExportedFile]) -> None:
        if wrote:
            names = files.move_files(table, self.where, wrote, run)
            self.owner.check()
            table.commit(run, wrote, names)


def _written_here(parameters: ExportParameters, planned: Sequence[Slice]) -> list[ExportedFile]:
    try:
        return list(writing.write(parameters, planned))
    except ConfigurationError as error:
        # The settings are right, because Django connects with them.
        raise LakeError(str(error)) from error


def _counted(using: str, made: LakeRun) -> dict[str, int]:
    try:
        return slices.count_rows(using, made)
    finally:
        connections.close_all()  # this thread's


def give_up(using: str, where: str, interrupted: LakeRun) -> None:
    """Delete a run; files in the Delta log stay in the lake."""
    unknown = [Table(where, name) for name in TABLES]
    missing = [table for table in unknown if table.last_run() < interrupted.pk]
    files.clean(where, missing, interrupted.pk)
    interrupted.delete(using=using)


def _names_of(some: Iterable[Table]) -> list[str]:
    return [table.name for table in some]


def _registry(using: str) -> dict[str, Names]:
    """Return names by id, by table of the lake, with those of soft-deleted rows."""
    channels = dict(Channel.objects.using(using).values_list("pk", "name"))
    consumers = Consumer.objects.using(using).values_list("pk", "channel_id", "name")
    return {
        "archive": {pk: (channels[channel], name) for pk, channel, name in consumers},
        "messages": {pk: (name,) for pk, name in channels.items()},
    }
