"""Retention with a lake: days are dropped from PostgreSQL once they are old and verified."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

from django.db import OperationalError

from pulljobs.errors import LakeError
from pulljobs.lake import lock, verified_days
from pulljobs.lake.spark import comparing, verifying
from pulljobs.lake.spark.comparing import PARTITIONED, DayComparison, Days
from pulljobs.lake.spark.export_run import Sessions
from pulljobs.storage import partition_dropping, partitions
from pulljobs.storage.partitions import Partition


class Retained(NamedTuple):
    """Result of `retain`: dropped partitions, partitions still needed, and days that differ."""

    dropped: list[Partition]
    needed: list[Partition]
    """Partitions that equal the lake and stay, because live jobs need them or rows came later."""
    differing: list[DayComparison]
    """Days that differ from the lake and stay."""


def retain(
    using: str, location: str, age: timedelta, only: Collection[date], sessions: Sessions
) -> Retained:
    """Compare the partitions older than `age` with the lake, and drop equal ones that no job needs.

    With days in `only`, only partitions of these days are compared, even if they were restored.
    Otherwise a partition that was restored less than `age` ago stays. Raise LakeError if another
    process writes to the lake, or if an export run is open.
    """
    lock.check_owner(using)
    with lock.hold_lock(using):
        old = partitions.older(using, age)
        named = [partition for partition in old if partition.day in only]
        chosen = named if only else verified_days.exclude_restored(using, location, age, old)
        if not chosen:
            return Retained([], [], [])
        snapshot = verifying.take_snapshot(using, location)
        days = _by_table(chosen)
        compared = comparing.compare_days(sessions, using, snapshot, days)
        verifying.record_results(using, snapshot, compared)
        differing = [day for day in compared if not day.is_equal]
        kept = {day.partition for day in differing}
        equal = [partition for partition in chosen if partition not in kept]
        dropped = list(_dropped(using, location, equal, snapshot.high_xid))
    needed = [partition for partition in equal if partition not in dropped]
    return Retained(dropped, needed, differing)


def _dropped(
    using: str, location: str, equal: Iterable[Partition], high_xid: int
) -> Iterator[Partition]:
    """Drop the partitions that no job needs, record the drops, and yield each.

    A partition that a transaction from `high_xid` on has written to stays, too. Raise LakeError at
    the first that is locked.
    """
    names: list[str] = []
    for partition in equal:
        try:
            if not partition_dropping.drop(using, partition, high_xid):
                continue
        except OperationalError as error:
            done = f"Dropped: {', '.join(names)}." if names else "Nothing was dropped."
            line = str(error).partition("\n")[0]
            raise LakeError(
                f"{partition.name} cannot be dropped ({line}): run the command again. {done}"
            ) from error
        verified_days.record_drop(using, location, [partition])
        names.append(partition.name)
        yield partition


def _by_table(chosen: Iterable[Partition]) -> Days:
    days: Days = defaultdict(list)
    names = {ours: theirs for theirs, ours in PARTITIONED.items()}
    for partition in chosen:
        days[names[partition.table]].append(partition.day)
    return days
