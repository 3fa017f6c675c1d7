"""Ledger of export runs in PostgreSQL, and how far the lake is behind.

An export run takes the rows of a window: of the transactions from its `low_xid` to below its
`high_xid`. The next window of the same lake begins at `high_xid`. The argument `location` is that
of the lake.
"""

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
"""Margin between the id and the time of a settlement, far above the real difference."""

UNKNOWN: Final = (
    "This database knows no run of the export to this lake, so the transactions in the lake are "
    "unknown: run `pulljobs lake rebase` first."
)


class Horizon(NamedTuple):
    """Transaction number below which all transactions have ended, and the cluster that counts them.

    An export run that begins now ends its window there.
    """

    xid: int
    """Number below which all transactions have ended."""
    system_identifier: int
    """Identifier of the PostgreSQL cluster, whose copies by dump have another one."""
    next_xid: int
    """Number above those of all transactions that have ended."""


class Blocker(NamedTuple):
    """Oldest open transaction with writes: no window can end after it."""

    holder: str
    """Description such as "process 4711" or "prepared transaction x"."""
    age: timedelta | None
    """Time since the transaction began, or None if the database role may not see it."""


def read_horizon(using: str) -> Horizon:
    """Read the transaction number below which all transactions have ended."""
    [row] = run(using, "export_horizon", {})
    return Horizon(row.horizon, row.system_identifier, row.next_xid)


def find_blocker(using: str) -> Blocker | None:
    """Return the oldest open transaction that has written, or None if there is none."""
    rows = run(using, "export_blocker", {})
    return Blocker(rows[0].who, rows[0].age) if rows else None


def find_open_run(using: str, location: str) -> LakeRun | None:
    """Return the export run to this lake that began and did not end, or None."""
    runs = LakeRun.objects.using(using).filter(location=location, state=LakeRun.State.OPEN)
    return runs.first()


def find_last_run(using: str, location: str) -> LakeRun | None:
    return LakeRun.objects.using(using).filter(location=location).order_by("-id").first()


def find_run_of(using: str, location: str, table: str) -> int:
    """Return the number of the last export run that wrote rows of a lake's table, or 0 if none did.

    Runs before a rebase do not count, because the rebase compared their rows with the lake.
    """
    runs = LakeRun.objects.using(using).filter(location=location, state=LakeRun.State.DONE)
    rebase = runs.filter(kind=LakeRun.Kind.REBASE).aggregate(last=Max("pk"))["last"] or 0
    later = runs.filter(pk__gt=rebase, **{f"rows__{table}__gt": 0})
    return later.aggregate(last=Max("pk"))["last"] or 0


def begin_run(using: str, location: str, low: int, options: Mapping[str, Any]) -> LakeRun:
    """Record the begin of an export run, whose window goes from `low` up to the current horizon.

    The commit waits for the disk, whatever the session's settings. Then earlier commits that did
    not wait are on disk as well. Otherwise a crash of the server could undo rows that the lake has,
    and use their transaction numbers again.
    """
    with transaction.atomic(using=using), connections[using].cursor() as cursor:
        cursor.execute("SET LOCAL synchronous_commit = on")
        now = read_horizon(using)
        lake_run = LakeRun(
            kind=LakeRun.Kind.EXPORT,
            state=LakeRun.State.OPEN,
            location=location,
            system_identifier=now.system_identifier,
            low_xid=low,
            high_xid=max(low, now.xid),
            options=dict(options),
        )
        return _save(using, lake_run)


def find_foreign_rebase(using: str, location: str, since: int) -> LakeRun | None:
    """Return a rebase of another lake, after run `since`, that renumbered rows, or None."""
    rebases = LakeRun.objects.using(using).filter(kind=LakeRun.Kind.REBASE, pk__gt=since)
    return rebases.filter(options__renumbered__gt=0).exclude(location=location).first()


def record_rebase(
    using: str, location: str, now: Horizon, newest: int, renumbered: int = 0
) -> LakeRun:
    """Record a rebase: exports to the lake go on from a database that replaced the former one.

    The next export run has a window that begins at `now`, and a number above `newest`, the number
    of the last export run in the lake. `renumbered` is the number of rows that the rebase changed.
    The row is written in the caller's transaction.
    """
    with connections[using].cursor() as cursor:
        cursor.execute(
            "SELECT setval(pg_get_serial_sequence('pulljobs_lake_run', 'id'),"
            " greatest(%s, nextval(pg_get_serial_sequence('pulljobs_lake_run', 'id'))))",
            [max(newest, 1)],
        )
    lake_run = LakeRun(
        kind=LakeRun.Kind.REBASE,
        state=LakeRun.State.DONE,
        location=location,
        system_identifier=now.system_identifier,
        low_xid=now.xid,
        high_xid=now.xid,
        options={"renumbered": renumbered},
    )
    return _save(using, lake_run)


def end_run(using: str, lake_run: LakeRun, rows: Mapping[str, int], size: int) -> None:
    """Mark an export run as done, with the rows by table and the bytes that it wrote."""
    LakeRun.objects.using(using).filter(pk=lake_run.pk, state=LakeRun.State.OPEN).update(
        state=LakeRun.State.DONE, done_at=Now(), rows=dict(rows), bytes=size
    )


def read_settled_high(using: str, location: str) -> int:
    """Return the transaction number below which the lake has all rows, or 0 before an export."""
    runs = LakeRun.objects.using(using).filter(location=location, state=LakeRun.State.DONE)
    return runs.order_by("-id").values_list("high_xid", flat=True).first() or 0


def measure_lag(using: str, location: str) -> timedelta:
    """Return the age of the oldest settlement that is not in the lake, or 0 if the lake has all."""
    rows = run(using, "lake_lag", {"high_xid": read_settled_high(using, location)})
    return rows[0].lag if rows else timedelta()


def read_known_until(using: str, location: str) -> datetime:
    """Return the time before which the lake has all settlements of ended transactions.

    It may be earlier than the start of the last export run. If a transaction was open then,
    settlements that later transactions made are not in the lake yet.
    """
    runs = LakeRun.objects.using(using).filter(location=location, done_at__isnull=False)
    latest: datetime = runs.aggregate(last=Max("opened_at"))["last"] or nodes.clock(using)
    high_id = ids.first_of(latest + ID_TOLERANCE)
    params = {"high_xid": read_settled_high(using, location), "high_id": high_id}
    [row] = run(using, "lake_known", params)
    return min(latest, row.settled_at or latest)


def inline_parameters(using: str, name: str, params: Mapping[str, Any]) -> str:
    """Return the text of the named statement with its parameters written into it.

    Spark and ADBC run such texts, because they cannot bind parameters.
    """
    connection = connections[using]
    connection.ensure_connection()
    with ClientCursor(connection.connection) as cursor:
        return cursor.mogrify(statement(name), params)


def _save(using: str, lake_run: LakeRun) -> LakeRun:
    lake_run.opened_at = Now()
    lake_run.save(using=using, force_insert=True)
    lake_run.refresh_from_db(using=using)
    return lake_run
