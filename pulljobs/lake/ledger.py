"""Ledger of the lake: runs of the export, and days that were verified."""

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
from pulljobs.engine.connection_bounds import with_bounds
from pulljobs.engine.sql import statement
from pulljobs.errors import LakeError
from pulljobs.lake.models import LakeDay, LakeRun
from pulljobs.storage import nodes, partitions
from pulljobs.storage.partitions import Partition
from pulljobs.storage.statements import run

ID_TOLERANCE: Final = timedelta(minutes=1)
"""Far more than the time between a settlement and the generation of its id."""
UNVERIFIED: Final = 0
"""Value of `high_xid` for a day that was not compared."""
LOCK: Final = 0x6C616B65  # "lake"
"""Advisory lock of the process that writes to the lake, for all locations."""


def location(setting: str) -> str:
    """Return the absolute location of PULLJOBS['LAKE']; empty if there is no lake."""
    return os.path.abspath(setting) if setting and "://" not in setting else setting.rstrip("/")


class Horizon(NamedTuple):
    xid: int
    """Number below which all transactions have ended."""
    system_identifier: int
    next_xid: int


class Blocker(NamedTuple):
    """Open transaction that holds the horizon back."""

    holder: str
    age: timedelta | None
    """None if the database role may not see it."""


class Owner:
    """Exclusive right to write to the lake, which lasts as long as its database session."""

    def __init__(self, session: "psycopg.Connection[Any]") -> None:
        self._session = session

    def check(self) -> None:
        """Raise LakeError if the lock is lost, because another process may have it."""
        try:
            self._session.execute("SELECT 1")
        except psycopg.Error as error:
            raise LakeError(
                "The connection that holds the lock of the lake broke: run the command again."
            ) from error


def check_owner(using: str) -> None:
    """Raise LakeError if the database role does not own the partitioned tables."""
    if tables := partitions.not_owned(using):
        raise LakeError(f"This role does not own {' and '.join(tables)}: run it as their owner.")


@contextmanager
def hold_lock(using: str) -> Iterator[Owner]:
    """Hold the lock of the lake; raise LakeError if another process has it or the database fails.

    The lock belongs to a transaction, so that it works behind a pooler, too. The transaction writes
    nothing and has no snapshot between its statements: it holds back neither vacuum nor exports.
    """
    parameters = connections[using].get_connection_params()
    parameters = {name: parameters[name] for name in parameters if name not in DJANGO_PARAMETERS}
    try:
        with psycopg.connect(**with_bounds(parameters), prepare_threshold=None) as session:
            session.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            row = session.execute("SELECT pg_try_advisory_xact_lock(%s)", [LOCK]).fetchone()
            if row is None or not row[0]:
                raise LakeError("Another process writes to the lake: try again when it is done.")
            yield Owner(session)
            session.rollback()
    except psycopg.Error as error:
        line = str(error).strip().partition("\n")[0]
        raise LakeError(f"The database fails: {line}") from error


DJANGO_PARAMETERS: Final = frozenset({"context", "cursor_factory", "prepare_threshold"})


def read_horizon(using: str) -> Horizon:
    """Read the transaction number below which all transactions have ended."""
    [row] = run(using, "export_horizon", {})
    return Horizon(row.horizon, row.system_identifier, row.next_xid)


def find_blocker(using: str) -> Blocker | None:
    """Return the transaction that holds the horizon back, if any."""
    rows = run(using, "export_blocker", {})
    return Blocker(rows[0].who, rows[0].age) if rows else None


def find_open_run(using: str) -> LakeRun | None:
    """Return the run that was interrupted, if any."""
    return LakeRun.objects.using(using).filter(state=LakeRun.State.OPEN).first()


def find_last_run(using: str, location: str) -> LakeRun | None:
    return LakeRun.objects.using(using).filter(location=location).order_by("-id").first()


def begin_run(using: str, location: str, low: int, options: Mapping[str, Any]) -> LakeRun:
    """Open a run up to the horizon.

    The commit waits for the disk, whatever the session's settings: earlier commits that did not
    wait are on disk then as well. Otherwise a crash of the server could undo rows, and reuse
    transaction numbers, that the lake has.
    """
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = on")
        now = read_horizon(using)
        made = LakeRun(
            kind=LakeRun.Kind.EXPORT,
            state=LakeRun.State.OPEN,
            location=location,
            system_identifier=now.system_identifier,
            low_xid=low,
            high_xid=max(low, now.xid),
            options=dict(options),
        )
        return _save(using, made)


def record_rebase(using: str, location: str, now: Horizon, newest: int) -> LakeRun:
    """Record a rebase: the next window begins at `now`, and run ids continue after `newest`.

    Joins the caller's transaction.
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
    return _save(using, made)


def end_run(using: str, done: LakeRun, rows: Mapping[str, int], size: int) -> None:
    """Mark a run as done, with its rows by table and its size in bytes."""
    LakeRun.objects.using(using).filter(pk=done.pk, state=LakeRun.State.OPEN).update(
        state=LakeRun.State.DONE, done_at=Now(), rows=dict(rows), bytes=size
    )


def read_settled_high(using: str, location: str) -> int:
    """Return the end of the last window that is done; 0 if there is none."""
    runs = LakeRun.objects.using(using).filter(location=location, state=LakeRun.State.DONE)
    return runs.order_by("-id").values_list("high_xid", flat=True).first() or 0


def measure_lag(using: str, location: str) -> timedelta:
    """Return the age of the oldest settlement that is not in the lake."""
    rows = run(using, "lake_lag", {"high_xid": read_settled_high(using, location)})
    return rows[0].lag if rows else timedelta()


def read_known_until(using: str, location: str) -> datetime:
    """Return the time before which all settlements of ended transactions are in the lake.

    It may be earlier than the start of the last run: a transaction that was open then holds back
    settlements made since it began.
    """
    runs = LakeRun.objects.using(using).filter(location=location, done_at__isnull=False)
    latest: datetime = runs.aggregate(last=Max("opened_at"))["last"] or nodes.clock(using)
    high_id = ids.first_of(latest + ID_TOLERANCE)
    params = {"high_xid": read_settled_high(using, location), "high_id": high_id}
    [row] = run(using, "lake_known", params)
    return min(latest, row.settled_at or latest)


def record_verified(using: str, location: str, compared: LakeDay) -> None:
    """Record that a day is equal in PostgreSQL and in the lake, except for later transactions."""
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
    """Record that a day is no longer known to be equal."""
    _forget(LakeDay.objects.using(using).filter(location=location, table=table, day=day))


def record_doubts(using: str, location: str) -> None:
    """Record that no day is known to be equal, because transactions have other numbers now."""
    _forget(LakeDay.objects.using(using).filter(location=location))


def _forget(days: QuerySet[LakeDay]) -> None:
    """Delete the days, except those that record a drop or a restore."""
    days.filter(dropped_at=None, restored_at=None).delete()
    days.exclude(restored_at=None).update(high_xid=UNVERIFIED)


def find_verified_high(
    using: str, location: str, retention: timedelta, partition: Partition
) -> int | None:
    """Return the transaction number below which the lake verifiably has the partition.

    Return None if it must stay: it was not verified, or was restored within `retention`.
    """
    days = _days(using, location, [partition]).exclude(restored_at__gt=Now() - retention)
    return days.exclude(high_xid=UNVERIFIED).values_list("high_xid", flat=True).first()


def exclude_restored(
    using: str, location: str, retention: timedelta, some: Sequence[Partition]
) -> list[Partition]:
    """Return the partitions that were not restored within `retention`."""
    restored = _days(using, location, some).filter(restored_at__gt=Now() - retention)
    kept = set(restored.values_list("table", "day"))
    return [partition for partition in some if partition not in kept]


def find_dropped(using: str, location: str) -> set[Partition]:
    """Return the partitions that were dropped because the lake has them."""
    days = LakeDay.objects.using(using).filter(location=location).exclude(dropped_at=None)
    return set(map(Partition._make, days.values_list("table", "day")))


def record_drop(using: str, location: str, partitions: Iterable[Partition]) -> None:
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


def inline_parameters(using: str, name: str, params: Mapping[str, Any]) -> str:
    """Return the text of a statement with its values in it, for clients that cannot bind."""
    connection = connections[using]
    connection.ensure_connection()
    with ClientCursor(connection.connection) as cursor:
        return cursor.mogrify(statement(name), params)


def _save(using: str, made: LakeRun) -> LakeRun:
    made.opened_at = Now()
    made.save(using=using, force_insert=True)
    made.refresh_from_db(using=using)
    return made


class Keeper:
    """Keeper of history by the lake; see `hooks.HistoryKeeper`."""

    missing = "the lake has no verified copy of it"

    def is_active(self) -> bool:
        return bool(settings().LAKE)

    def find_copy(self, using: str, table: str, day: date, age: timedelta) -> int | None:
        return find_verified_high(using, location(settings().LAKE), age, Partition(table, day))

    def record_drop(self, using: str, table: str, day: date) -> None:
        record_drop(using, location(settings().LAKE), [Partition(table, day)])


KEEPER: Final = Keeper()
