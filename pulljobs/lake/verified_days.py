"""Days of the lake that are recorded as verified, dropped or restored."""

from collections.abc import Iterable, Sequence
from datetime import date, timedelta
from functools import reduce
from operator import or_
from typing import Final

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from pulljobs.conf import settings
from pulljobs.lake.locations import normalize_location
from pulljobs.lake.models import LakeDay
from pulljobs.storage.partitions import Partition

UNVERIFIED: Final = 0
"""Value of `high_xid` for a day that has to be compared again before it may be dropped."""


def record_verified(using: str, location: str, compared: LakeDay) -> None:
    """Record that PostgreSQL and the lake have the same rows of the day `compared`.

    Rows of transactions from its `high_xid` on were not compared. An earlier record is replaced,
    except its times of a drop and of a restore.
    """
    LakeDay.objects.using(using).update_or_create(
        location=location,
        table=compared.table,
        day=compared.day,
        defaults={
            "high_xid": compared.high_xid,
            "rows": compared.rows,
            "checksum": compared.checksum,
            "verified_at": Now(),
        },
    )


def record_doubt(using: str, location: str, table: str, day: date) -> None:
    """Record that a day may differ from PostgreSQL, so that it is compared again before a drop."""
    _forget(LakeDay.objects.using(using).filter(location=location, table=table, day=day))


def record_doubts(using: str, location: str) -> None:
    """Record for all days in PostgreSQL that they may differ: transactions have new numbers now."""
    _forget(LakeDay.objects.using(using).filter(location=location))


def _forget(days: QuerySet[LakeDay]) -> None:
    """Record that these days are not verified: delete their rows, or mark those of restored days.

    Rows of days that are dropped from PostgreSQL stay as they are.
    """
    days.filter(dropped_at=None, restored_at=None).delete()
    days.exclude(restored_at=None).update(high_xid=UNVERIFIED)


def find_verified_high(
    using: str, location: str, retention: timedelta, partition: Partition
) -> int | None:
    """Return the transaction number below which the lake verifiably has the partition.

    Return None if PostgreSQL must keep it, because it was not verified, or was restored less than
    `retention` ago.
    """
    days = _days(using, location, [partition]).exclude(restored_at__gt=Now() - retention)
    return days.exclude(high_xid=UNVERIFIED).values_list("high_xid", flat=True).first()


def exclude_restored(
    using: str, location: str, retention: timedelta, some: Sequence[Partition]
) -> list[Partition]:
    """Return the partitions except those that were restored less than `retention` ago."""
    restored = _days(using, location, some).filter(restored_at__gt=Now() - retention)
    kept = set(restored.values_list("table", "day"))
    return [partition for partition in some if partition not in kept]


def find_verified(using: str, location: str) -> set[Partition]:
    """Return the partitions in PostgreSQL that were equal when they were compared last.

    A partition that was verified, dropped and restored is among them: it was copied from the lake.
    """
    days = LakeDay.objects.using(using).filter(location=location, dropped_at=None)
    equal = days.exclude(high_xid=UNVERIFIED)
    return set(map(Partition._make, equal.values_list("table", "day")))


def find_dropped(using: str, location: str) -> set[Partition]:
    """Return the partitions that were dropped because the lake has them, and not restored since."""
    days = LakeDay.objects.using(using).filter(location=location).exclude(dropped_at=None)
    return set(map(Partition._make, days.values_list("table", "day")))


def record_drop(using: str, location: str, partitions: Iterable[Partition]) -> None:
    """Record that PostgreSQL dropped these partitions, because the lake has them."""
    _days(using, location, partitions).update(dropped_at=Now(), restored_at=None)


def record_restore(using: str, location: str, partition: Partition) -> None:
    """Record that the partition was restored, even if its drop was never recorded."""
    day = LakeDay(
        location=location,
        table=partition.table,
        day=partition.day,
        high_xid=UNVERIFIED,
        rows=0,
        checksum=0,
        verified_at=Now(),
        restored_at=Now(),
    )
    LakeDay.objects.using(using).bulk_create(
        [day],
        update_conflicts=True,
        unique_fields=["location", "table", "day"],
        update_fields=["dropped_at", "restored_at"],
    )


def _days(using: str, location: str, partitions: Iterable[Partition]) -> QuerySet[LakeDay]:
    known = [Q(table=partition.table, day=partition.day) for partition in partitions]
    days = LakeDay.objects.using(using).filter(location=location)
    return days.filter(reduce(or_, known)) if known else days.none()


class Keeper:
    """Keeper of history, which lets retention drop a day only if the lake has a verified copy.

    `hooks.HistoryKeeper` describes the methods.
    """

    missing = "the lake has no verified copy of it"

    def is_active(self) -> bool:
        return bool(settings().LAKE)

    def find_copy(self, using: str, table: str, day: date, age: timedelta) -> int | None:
        return find_verified_high(
            using, normalize_location(settings().LAKE), age, Partition(table, day)
        )

    def record_drop(self, using: str, table: str, day: date) -> None:
        record_drop(using, normalize_location(settings().LAKE), [Partition(table, day)])


KEEPER: Final = Keeper()
