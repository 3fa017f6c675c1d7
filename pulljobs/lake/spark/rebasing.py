"""After a dump was restored, or a standby that lagged took over: transactions count from elsewhere.

Which rows the lake has is then told by their ids, one by one, and the rows are numbered anew so
that windows of transactions tell it again.
"""

from datetime import date
from typing import Any, Final

from django.db import transaction
from pyarrow import parquet

from pulljobs.lake import ledger
from pulljobs.lake.spark import exporting, verifying
from pulljobs.lake.spark.tables import Table
from pulljobs.lake.spark.verifying import PARTITIONED
from pulljobs.storage.partitions import Partition
from pulljobs.storage.statements import run
from pyspark_pulljobs.schemas import TABLES
from pyspark_pulljobs.writing import place

IDS: Final = ["id"]


def rebase(using: str, where: str) -> dict[str, int]:
    """How many rows go to the lake again or for the first time, by its table.

    LakeError while somebody writes to the lake. A run that was cut off is given up: what the log
    has of it counts, what it has not is removed.
    """
    ledger.check_owner(using)
    with ledger.owned(using):
        if (cut_off := ledger.open_run(using)) is not None:
            exporting.give_up(using, where, cut_off)
        with transaction.atomic(using=using):
            now = ledger.horizon(using)
            fresh = {
                table: sum(
                    _renumbered(using, where, table, day, now)
                    for day in verifying.days_here(using)[table]
                )
                for table in TABLES
            }
            ledger.doubted_all(using, where)
            ledger.rebased(using, where, now, exporting.newest_run(where))
    return fresh


def _renumbered(using: str, where: str, table: str, day: date, now: ledger.Horizon) -> int:
    low, high = Partition(PARTITIONED[table], day).bounds
    params: dict[str, Any] = {
        "low_id": low,
        "high_id": high,
        "exported": _exported(where, table, day),
        "low_xid": now.xid,
        "next_xid": now.next_xid,
    }
    [(fresh,)] = run(using, f"rebase_{table}", params)
    return int(fresh)


def _exported(where: str, table: str, day: date) -> list[int]:
    of = Table(where, table)
    filesystem, root = place(of.location)
    found: list[int] = []
    for held in of.held([day]):
        ids = parquet.read_table(f"{root}/{held.path}", columns=IDS, filesystem=filesystem)
        found += ids["id"].to_pylist()
    return found
