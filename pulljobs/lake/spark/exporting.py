"""Export of the rows of transactions that ended since the last export, once after any crash.

An export run records its window of transactions in PostgreSQL and writes files that no reader of
the Delta log sees. It commits the files to the log with the run's number, and then records that it
is done. The log decides: if it lacks the run, the next call of the export removes the run's files
and writes them again.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import psycopg
import pyarrow as pa
from deltalake.exceptions import DeltaError

from pulljobs.conf import settings
from pulljobs.errors import ConfigurationError, LakeError
from pulljobs.lake import ledger, lock
from pulljobs.lake.models import LakeRun
from pulljobs.lake.spark import failures, files, session, slices, tables
from pulljobs.lake.spark.export_run import ExportRun, Sessions
from pulljobs.lake.spark.tables import Table
from pulljobs.models import Channel
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.selecting import ADBC


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Choice of the payloads to export, and of the way rows are read."""

    payload_cap: int | None = None
    """Size in bytes above which a payload is not exported, or None to export none."""
    channels: tuple[str, ...] = ()
    """Channels whose payloads are exported, or empty for all channels."""
    reader: str = ADBC


@dataclass(slots=True)
class Exported:
    """Result of a call of the export, with at most two runs, or the sum of several results."""

    runs: list[int] = field(default_factory=list)
    """Numbers of the export runs."""
    rows: dict[str, int] = field(default_factory=lambda: dict.fromkeys(TABLES, 0))
    """Number of rows by table of the lake."""
    bytes: int = 0
    seconds: float = 0.0
    resumed: bool = False
    """True if an interrupted export run was completed first."""
    held_back_by: str = ""
    """Process whose transaction has been open for too long, or empty."""

    def merge(self, later: "Exported") -> None:
        self.runs += later.runs
        self.bytes += later.bytes
        self.seconds += later.seconds
        self.resumed |= later.resumed
        self.held_back_by = later.held_back_by
        for table, count in later.rows.items():
            self.rows[table] += count

    def add(self, lake_run: LakeRun) -> None:
        self.runs.append(lake_run.pk)
        self.bytes += lake_run.bytes
        for table, count in lake_run.rows.items():
            self.rows[table] += count


def export(options: ExportOptions, sessions: Sessions, *, always_spark: bool = False) -> Exported:
    """Complete an interrupted export run, if there is one, and export the new rows.

    A Spark session is opened only for many rows, or if `always_spark`. Raise LakeError if another
    process writes to the lake, if the lake is of another database, or if reads or writes fail, and
    ConfigurationError for a missing lake or channel. The next call goes on where this one ended.
    """
    using, location = settings().DATABASE, tables.location()
    stored = _stored_options(using, options)
    session.share_password()
    exported, started = Exported(), time.monotonic()
    with _raising_lake_errors(location), lock.hold_lock(using) as owner:
        run = ExportRun(using, location, options.reader, owner, sessions, always_spark)
        _check_history(using, location)
        if (interrupted := ledger.find_open_run(using, location)) is not None:
            exported.resumed = True
            exported.add(run.end(interrupted, is_interrupted=True))
        last = ledger.find_last_run(using, location)
        low = last.high_xid if last else 0
        if _is_anything_new(using, low):
            _create_tables(location)
            exported.add(run.end(ledger.begin_run(using, location, low, stored)))
    exported.seconds = time.monotonic() - started
    return exported


@contextmanager
def _raising_lake_errors(location: str) -> Iterator[None]:
    """Turn errors of psycopg, of files and of the Delta log into a LakeError, but not Django's."""
    try:
        yield
    except (psycopg.Error, DeltaError, OSError, pa.ArrowException) as error:
        reason = failures.summarize_store_error(error)
        raise LakeError(f"The export to {location} was interrupted: {reason}") from error


def _check_history(using: str, location: str) -> None:
    """Raise LakeError if the lake was not exported from this database, or lacks an export run.

    That happens if the lake or the database is replaced, as from a backup. Then the lake has runs
    that the database does not know, or the other way round, or transactions are numbered
    differently.
    """
    last, now = ledger.find_last_run(using, location), ledger.read_horizon(using)
    if newest_run(location) > (last.pk if last else 0):
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
    if (foreign := ledger.find_foreign_rebase(using, location, last.pk)) is not None:
        raise LakeError(
            f"A rebase of another lake, at {foreign.location}, has numbered the transactions "
            "differently, so rows would be exported twice. Continue with `pulljobs lake rebase`."
        )
    check_lake(using, location)


def check_lake(using: str, location: str) -> None:
    """Raise LakeError if the lake lacks an export run that the database knows to have rows."""
    for name in TABLES:
        if Table(location, name).last_run() < (run := ledger.find_run_of(using, location, name)):
            raise LakeError(
                f"The lake at {location} lacks rows of {name} that run {run} exported: it was "
                "deleted, is not mounted, or is an older copy. Put it back, or let `pulljobs lake "
                "rebase` export again what PostgreSQL still has."
            )


def newest_run(location: str) -> int:
    """Return the number of the last export run with files in the lake, or 0 if it is empty."""
    return max(Table(location, name).last_run() for name in TABLES)


def _create_tables(location: str) -> None:
    """Create missing tables and columns of the lake before an export run begins.

    So the error of a wrong URL leaves no interrupted run.
    """
    for name in TABLES:
        Table(location, name).create()


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
        raise ConfigurationError(f"There is no channel {missing[0]!r}: correct the name.")
    return {"payload_cap": options.payload_cap, "channel_ids": sorted(known.values())}


def give_up(using: str, location: str, interrupted: LakeRun) -> None:
    """Delete an interrupted export run from the ledger, and its files that are in no Delta log."""
    unknown = [Table(location, name) for name in TABLES]
    missing = [table for table in unknown if table.last_run() < interrupted.pk]
    files.clean(missing, interrupted.pk)
    interrupted.delete(using=using)
