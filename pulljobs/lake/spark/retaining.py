"""Days that are old enough leave PostgreSQL: those that the lake holds, verified."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from datetime import date, timedelta
from typing import NamedTuple

from django.db import OperationalError

from pulljobs.errors import LakeError
from pulljobs.lake import ledger
from pulljobs.lake.spark import verifying
from pulljobs.lake.spark.exporting import Sessions
from pulljobs.lake.spark.verifying import PARTITIONED, Compared, Days
from pulljobs.storage import partitions
from pulljobs.storage.partitions import Partition


class Retained(NamedTuple):
    dropped: list[Partition]
    needed: list[Partition]
    """Equal, but a live job needs it, or it was written to since."""
    differing: list[Compared]


def retain(
    using: str, where: str, age: timedelta, only: Collection[date], sessions: Sessions
) -> Retained:
    """Compare the partitions that are wholly older, of these days if any are given; drop the equal.

    What was restored stays as long again, unless its day is given. Nobody writes to the lake
    meanwhile: LakeError if somebody does.
    """
    ledger.check_owner(using)
    with ledger.owned(using):
        old = partitions.older(using, age)
        named = [one for one in old if one.day in only]
        chosen = named if only else ledger.unrestored(using, where, age, old)
        if not chosen:
            return Retained([], [], [])
        of = verifying.snapshot(using, where)
        with sessions() as spark:
            found = verifying.compared(spark, using, of, _by_table(chosen))
        verifying.recorded(using, of, found)
        differing = [one for one in found if not one.is_equal]
        kept = {one.partition for one in differing}
        equal = [one for one in chosen if one not in kept]
        dropped = list(_dropped(using, where, equal, of.high_xid))
    return Retained(dropped, [one for one in equal if one not in dropped], differing)


def _dropped(
    using: str, where: str, equal: Iterable[Partition], high_xid: int
) -> Iterator[Partition]:
    """Each is noted at once; LakeError tells of those before one that somebody has locked."""
    names: list[str] = []
    for one in equal:
        try:
            if not partitions.drop(using, one, high_xid):
                continue
        except OperationalError as error:
            done = f"Dropped: {', '.join(names)}." if names else "Nothing was dropped."
            line = str(error).partition("\n")[0]
            raise LakeError(
                f"{one.name} can't be dropped ({line}): run it again. {done}"
            ) from error
        ledger.dropped(using, where, [one])
        names.append(one.name)
        yield one


def _by_table(chosen: Iterable[Partition]) -> Days:
    days: Days = defaultdict(list)
    names = {ours: theirs for theirs, ours in PARTITIONED.items()}
    for one in chosen:
        days[names[one.table]].append(one.day)
    return days
