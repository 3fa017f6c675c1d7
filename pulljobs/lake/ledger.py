"""Runs of the export in the ledger of the lake, and how far the lake has followed."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from django.db import connections, transaction
from django.db.models import Max
from django.db.models.functions import Now
from psycopg import ClientCursor

from pulljobs import ids
from pulljobs.engine.sql import statement
from pulljobs.lake.models import LakeRun
from pulljobs.storage import nodes
from pulljobs.storage.statements import run

ID_TOLERANCE: Final = timedelta(minutes=1)
"""Far more than the time between a settlement and the generation of its id."""


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


def read_horizon(using: str) -> Horizon:
    """Read the transaction number below which all transactions have ended."""
    [row] = run(using, "export_horizon", {})
    return Horizon(row.horizon, row.system_identifier, row.next_xid)


def find_blocker(using: str) -> Blocker | None:
    """Return the transaction that holds the horizon back, if any."""
    rows = run(using, "export_blocker", {})
    return Blocker(rows[0].who, rows[0].age) if rows else None


def find_open_run(using: str, location: str) -> LakeRun | None:
    """Return the run to this lake that was interrupted, if any."""
    runs = LakeRun.objects.using(using).filter(location=location, state=LakeRun.State.OPEN)
    return runs.first()


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
    """Return the end of the last window that is done, or 0 if there is none."""
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
