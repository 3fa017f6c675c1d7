"""Compaction of the lake's small files, and removal of files that the tables no longer name.

Both hold the lock of the lake, so that no export writes at the same time.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, NamedTuple

from deltalake import DeltaTable

from pulljobs.lake import lock
from pulljobs.lake.lock import Owner
from pulljobs.lake.spark.tables import WRITER, LoggedFile, Table
from pulljobs.progress import count_items, show_progress
from pyspark_pulljobs.schemas import TABLES

TARGET_BYTES: Final = 256 * 2**20
"""Approximate size of a compacted file."""
SMALL_BYTES: Final = TARGET_BYTES // 2
"""Size below which a file is small."""
AS_WRITTEN: Final[Mapping[str, Any]] = {"target_size": TARGET_BYTES, "writer_properties": WRITER}


class Compacted(NamedTuple):
    """Result of compacting one table: files before and after, and number of compacted days."""

    table: str
    files_before: int
    files_after: int
    days: int


class Vacuumed(NamedTuple):
    """Result of removing unused files from one table."""

    table: str
    files: int
    """Number of files that were removed."""


def compact(using: str, location: str) -> list[Compacted]:
    """Join the small files of each day of each table.

    The rows of a day that is over are also sorted by their ids. Return a result for each table that
    exists. Raise LakeError if another process writes to the lake.
    """
    with lock.hold_lock(using) as owner:
        return [_compact(table, delta, owner) for table, delta in _existing(location)]


def vacuum(using: str, location: str, age: timedelta) -> list[Vacuumed]:
    """Remove files that the newest version of a table does not name, after they are `age` old.

    The age is rounded down to hours. Until then, readers that opened an older version can read on.
    The Delta log is summarized in a checkpoint, and its entries of more than 30 days ago are
    removed. Return a result for each existing table. Raise LakeError if another process writes to
    the lake.
    """
    with lock.hold_lock(using), show_progress("vacuum", "tables", len(TABLES)) as shown:
        known = count_items(_existing(location), shown)
        return [Vacuumed(table.name, _vacuum(delta, age)) for table, delta in known]


def vacuum_table(table: Table, age: timedelta) -> int:
    """Remove files of one table that its newest version does not name, and return how many.

    They are older than `age`. The caller holds the lock of the lake.
    """
    delta = table.delta()
    return 0 if delta is None else _vacuum(delta, age)


def _existing(location: str) -> Iterator[tuple[Table, DeltaTable]]:
    for name in TABLES:
        table = Table(location, name)
        if (delta := table.delta()) is not None:
            yield table, delta


def _compact(table: Table, delta: DeltaTable, owner: Owner) -> Compacted:
    before, today = table.list_files(), datetime.now(UTC).date()
    if days := list_fragmented(before):
        table.check_writable()
    with show_progress(f"compact {table.name}", "days", len(days)) as shown:
        for day in count_items(days, shown):
            owner.check()
            filters = [("day", "=", day.isoformat())]
            if day < today:
                delta.optimize.z_order(["id"], partition_filters=filters, **AS_WRITTEN)
            else:
                delta.optimize.compact(partition_filters=filters, **AS_WRITTEN)
    if days:
        delta.create_checkpoint()
    return Compacted(table.name, len(before), len(table.list_files()), len(days))


def list_fragmented(files: Iterable[LoggedFile]) -> list[date]:
    """Return the days that have more than one small file, sorted."""
    small = Counter(file.day for file in files if file.bytes < SMALL_BYTES)
    return sorted(day for day, count in small.items() if count > 1)


def _vacuum(delta: DeltaTable, age: timedelta) -> int:
    hours = int(age.total_seconds() // 3600)
    removed = delta.vacuum(
        retention_hours=hours, dry_run=False, enforce_retention_duration=False, full=True
    )
    delta.create_checkpoint()
    delta.cleanup_metadata()
    return len(removed)
