"""Rebase: the lake goes on after a restored dump or a lagging standby took the database's place.

Transactions of the new database are numbered differently, so rows in the lake are found by their
ids. Rows in PostgreSQL get new numbers where these are wrong: rows of the lake belong below the
next window, and the others in it.
"""

from datetime import date
from typing import Any, Final

from django.db import transaction
from pyarrow import parquet

from pulljobs.engine.sql import Row
from pulljobs.lake import ledger, lock, verified_days
from pulljobs.lake.spark import exporting, verifying
from pulljobs.lake.spark.comparing import PARTITIONED
from pulljobs.lake.spark.tables import Table
from pulljobs.storage import counting
from pulljobs.storage.partitions import Partition
from pulljobs.storage.statements import run
from pyspark_pulljobs.schemas import TABLES

IDS: Final = ["id"]


def rebase(using: str, location: str) -> dict[str, int]:
    """Renumber the transactions of rows in PostgreSQL: the next export takes what the lake lacks.

    Return how many rows were renumbered for the next export, by table of the lake. An interrupted
    export run is given up: its files in the Delta log stay, and other files of it are removed.
    Raise LakeError if another process writes to the lake.
    """
    lock.check_owner(using)
    with lock.hold_lock(using):
        if (interrupted := ledger.find_open_run(using, location)) is not None:
            exporting.give_up(using, location, interrupted)
        with transaction.atomic(using=using):
            now = ledger.read_horizon(using)
            renumbered = {
                table: [
                    _renumber(using, location, table, day, now)
                    for day in verifying.list_days(using)[table]
                ]
                for table in TABLES
            }
            verified_days.record_doubts(using, location)
            changed = sum(row.changed for rows in renumbered.values() for row in rows)
            newest = exporting.newest_run(location)
            ledger.record_rebase(using, location, now, newest, changed)
            counting.recount(using)
    return {table: sum(row.fresh for row in rows) for table, rows in renumbered.items()}


def _renumber(using: str, location: str, table: str, day: date, now: ledger.Horizon) -> Row:
    """Renumber the transactions of the rows of a day.

    Return how many rows were `changed`, and how many of them are `fresh`: the lake lacks them.
    """
    low, high = Partition(PARTITIONED[table], day).bounds
    params: dict[str, Any] = {
        "low_id": low,
        "high_id": high,
        "exported": _exported(location, table, day),
        "low_xid": now.xid,
        "next_xid": now.next_xid,
    }
    [row] = run(using, f"rebase_{table}", params)
    return row


def _exported(location: str, table: str, day: date) -> list[int]:
    lake_table = Table(location, table)
    exported: list[int] = []
    for held in lake_table.list_files([day]):
        ids = parquet.read_table(held.path, columns=IDS, filesystem=lake_table.filesystem)
        exported += ids["id"].to_pylist()
    return exported
