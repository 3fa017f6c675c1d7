"""The ledger of the lake: runs of the export, and days that were verified."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from functools import reduce
from operator import or_
from typing import Any, Final, NamedTuple

import psycopg
from django.db import connections, transaction
from django.db.models import Max, Q, QuerySet
from django.db.models.functions import Now
from psycopg import ClientCursor

from pulljobs import ids
from pulljobs.conf import settings
from pulljobs.engine.sql import statement
from pulljobs.errors import LakeError
from pulljobs.lake.models import LakeDay, LakeRun
from pulljobs.storage import nodes, partitions
from pulljobs.storage.partitions import Partition
from pulljobs.storage.statements import run

MOMENT: Final = timedelta(minutes=1)
"""Far more than lies between a settlement's time and that of its id."""
UNVERIFIED: Final = 0
"""In the place of the first transaction of which nothing was looked at."""
LOCK: Final = 0x6C616B65  # "lake"
"""The advisory lock of whoever writes to the lake, of any location."""


def location(setting: str) -> str:
    """Of PULLJOBS['LAKE']: the same wherever this process was started; empty: there is none."""
    return os.path.abspath(setting) if setting and "://" not in setting else setting.rstrip("/")


class Horizon(NamedTuple):
    xid: int
    """All transactions below have ended."""
    system_identifier: int
    next_xid: int


class Blocker(NamedTuple):
    who: str
    age: timedelta | None
    """None: this role may not see it."""


class Owner:
    """The only one that writes to the lake: while its session of the database lasts."""

    def __init__(self, session: "psycopg.Connection[Any]") -> None:
        self._session = session

    def check(self) -> None:
        """Raise LakeError once the lock is lost: somebody else may have it."""
        try:
            self._session.execute("SELECT 1")
        except psycopg.Error as error:
            raise LakeError(
                "The connection that keeps others from the lake broke: run it again."
            ) from error


def check_owner(using: str) -> None:
    """LakeError for a role that may neither make nor drop days, nor number their rows anew."""
    if tables := partitions.not_owned(using):
        raise LakeError(f"This role does not own {' and '.join(tables)}: run it as their owner.")


@contextmanager
def owned(using: str) -> Iterator[Owner]:
    """LakeError if somebody else is at it, or where the database fails.

    The lock is a transaction's, so that it lasts behind a pooler too. That transaction writes
    nothing and has no snapshot between its statements: it holds back neither vacuum nor exports.
    """
    parameters = connections[using].get_connection_params()
    parameters = {name: parameters[name] for name in parameters if name not in OF_DJANGO}
    try:
        with psycopg.connect(**parameters, prepare_threshold=None) as session:
            session.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            row = session.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK]).fetchone()
            if row is None or not row[0]:
                raise LakeError("Somebody else writes to the lake: try again when they are done.")
            yield Owner(session)
            session.rollback()
    except psycopg.Error as error:
        line = str(error).strip().partition("\n")[0]
        raise LakeError(f"The database fails: {line}") from error


OF_DJANGO: Final = frozenset({"context", "cursor_factory", "prepare_threshold"})


def horizon(using: str) -> Horizon:
    [row] = run(using, "export_horizon", {})
    return Horizon(row.horizon, row.system_identifier, row.next_xid)


def blocker(using: str) -> Blocker | None:
    """Who holds the horizon back."""
    rows = run(using, "export_blocker", {})
    return Blocker(rows[0].who, rows[0].age) if rows else None


def open_run(using: str) -> LakeRun | None:
    """The one that was cut off."""
    return LakeRun.objects.using(using).filter(state=LakeRun.State.OPEN).first()


def last_run(using: str, location: str) -> LakeRun | None:
    return LakeRun.objects.using(using).filter(location=location).order_by("-id").first()


def begin(using: str, location: str, low: int, options: Mapping[str, Any]) -> LakeRun:
    """Open a run up to the horizon.

    The commit waits for the disk, whatever the session is set to: what committed before, though
    it may not have waited, is on disk then as well. Else a crash of the server could take back
    rows, and with them transaction numbers, that the lake has.
    """
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = on")
        now = horizon(using)
        made = LakeRun(
            kind=LakeRun.Kind.EXPORT,
            state=LakeRun.State.OPEN,
            location=location,
            system_identifier=now.system_identifier,
            low_xid=low,
            high_xid=max(low, now.xid),
            options=dict(options),
        )
        return _saved(using, made)


def rebased(using: str, location: str, now: Horizon, newest: int) -> LakeRun:
    """The next window of the location begins there; runs are numbered on from the newest.

    In the caller's transaction.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT setval(pg_get_serial_sequence('pulljobs_lake_run', 'id'),"
            " greatest(%s, nextval(pg_get_serial_sequence('pulljobs_lake_run', 'id'))))",
            [max(newest, 1)],
        )
    made = LakeRun(
        kind=LakeRun.Kind.REBASE,
        state=LakeRun.State.DONE,
        location=location,
        system_identifier=now.system_identifier,
        low_xid=now.xid,
        high_xid=now.xid,
    )
    return _saved(using, made)


def end(using: str, done: LakeRun, rows: Mapping[str, int], size: int) -> None:
    LakeRun.objects.using(using).filter(pk=done.pk, state=LakeRun.State.OPEN).update(
        state=LakeRun.State.DONE, done_at=Now(), rows=dict(rows), bytes=size
    )


def settled_high(using: str, location: str) -> int:
    """The end of the last window that is done; 0: there is none."""
    runs = LakeRun.objects.using(using).filter(location=location, state=LakeRun.State.DONE)
    return runs.order_by("-id").values_list("high_xid", flat=True).first() or 0


def lag(using: str, location: str) -> timedelta:
    """How old the oldest settlement is that is not there."""
    rows = run(using, "lake_lag", {"high_xid": settled_high(using, location)})
    return rows[0].lag if rows else timedelta()


def known_until(using: str, location: str) -> datetime:
    """What was settled before, in transactions that have ended, is there.

    Not always the beginning of the last run: a transaction that was open then holds back what was
    settled since it began.
    """
    runs = LakeRun.objects.using(using).filter(location=location, done_at__isnull=False)
    latest: datetime = runs.aggregate(last=Max("opened_at"))["last"] or nodes.clock(using)
    high_id = ids.first_of(latest + MOMENT)
    params = {"high_xid": settled_high(using, location), "high_id": high_id}
    [row] = run(using, "lake_known", params)
    return min(latest, row.settled_at or latest)


def verified(using: str, location: str, found: LakeDay) -> None:
    """Remember that a day is the same here and there, but for later transactions."""
    LakeDay.objects.using(using).update_or_create(
        location=location,
        table=found.table,
        day=found.day,
        defaults={
            "high_xid": found.high_xid,
            "rows": found.rows,
            "checksum": found.checksum,
            "verified_at": Now(),
        },
    )


def doubted(using: str, location: str, table: str, day: date) -> None:
    """Forget that a day was the same: it is not."""
    _forget(LakeDay.objects.using(using).filter(location=location, table=table, day=day))


def doubted_all(using: str, location: str) -> None:
    """Forget of every day that it was the same: transactions are counted anew."""
    _forget(LakeDay.objects.using(using).filter(location=location))


def _forget(days: QuerySet[LakeDay]) -> None:
    """But not which were dropped, nor which were restored and how long they are to stay."""
    days.filter(dropped_at=None, restored_at=None).delete()
    days.exclude(restored_at=None).update(high_xid=UNVERIFIED)


def copied(using: str, location: str, retention: timedelta, partition: Partition) -> int | None:
    """The transaction before which the lake has the partition, verified; None: it is to stay.

    What was restored stays for another retention.
    """
    days = _days(using, location, [partition]).exclude(restored_at__gt=Now() - retention)
    return days.exclude(high_xid=UNVERIFIED).values_list("high_xid", flat=True).first()


def unrestored(
    using: str, location: str, retention: timedelta, some: Sequence[Partition]
) -> list[Partition]:
    """Those that were not restored within that retention."""
    restored = _days(using, location, some).filter(restored_at__gt=Now() - retention)
    kept = set(restored.values_list("table", "day"))
    return [one for one in some if (one.table, one.day) not in kept]


def gone(using: str, location: str) -> set[Partition]:
    """Those that were dropped, for the lake has them."""
    days = LakeDay.objects.using(using).filter(location=location).exclude(dropped_at=None)
    return set(map(Partition._make, days.values_list("table", "day")))


def dropped(using: str, location: str, partitions: Iterable[Partition]) -> None:
    _days(using, location, partitions).update(dropped_at=Now(), restored_at=None)


def restored(using: str, location: str, partition: Partition) -> None:
    """It is there again, also where nobody here knows that it was dropped."""
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


def bound(using: str, name: str, params: Mapping[str, Any]) -> str:
    """The text of a statement with its values in it: for those who cannot bind any."""
    connection = connections[using]
    connection.ensure_connection()
    with ClientCursor(connection.connection) as cursor:
        return cursor.mogrify(statement(name), params)


def _saved(using: str, made: LakeRun) -> LakeRun:
    made.opened_at = Now()
    made.save(using=using, force_insert=True)
    made.refresh_from_db(using=using)
    return made


class Keeper:
    """The lake as a keeper of history; see `hooks.HistoryKeeper`."""

    missing = "the lake has no verified copy of it"

    def is_active(self) -> bool:
        return bool(settings().LAKE)

    def find_copy(self, using: str, table: str, day: date, age: timedelta) -> int | None:
        return copied(using, location(settings().LAKE), age, Partition(table, day))

    def record_drop(self, using: str, table: str, day: date) -> None:
        dropped(using, location(settings().LAKE), [Partition(table, day)])


KEEPER: Final = Keeper()
