"""Partitions of the tables of messages and of archived jobs, one for each day in UTC."""

from datetime import UTC, date, datetime, time, timedelta
from typing import Final, LiteralString, NamedTuple

from psycopg import sql

from pulljobs import ids
from pulljobs.storage import nodes
from pulljobs.storage.statements import query

XIDS: Final[dict[str, LiteralString]] = {
    "pulljobs_message": "published_xid",
    "pulljobs_archived_job": "settled_xid",
}
"""Column with the id of the transaction that wrote a row, by table. It has a BRIN index."""
PARTITIONED: Final = tuple(XIDS)
COUNT_CAP: Final = 10_000
"""Largest number of rows of a default partition that are counted."""


class Partition(NamedTuple):
    table: str
    day: date

    @property
    def name(self) -> str:
        return f"{self.table}_{self.day:%Y%m%d}"

    @property
    def bounds(self) -> tuple[int, int]:
        """Lowest id of the day and lowest id of the next day. Ids contain their time."""
        start = datetime.combine(self.day, time(), UTC)
        return ids.first_of(start), ids.first_of(start + timedelta(days=1))


def not_owned(using: str) -> list[str]:
    """Return the partitioned tables that the connection's role does not own.

    It may neither create nor drop their partitions.
    """
    rows = query(
        using,
        sql.SQL(
            "SELECT relname FROM pg_class WHERE oid = ANY({}::regclass[])"
            " AND NOT pg_has_role(relowner, 'USAGE') ORDER BY relname"
        ).format(sql.Literal(list(PARTITIONED))),
    )
    return [row.relname for row in rows]


def existing(using: str, table: str) -> list[Partition]:
    """Return the partitions of a table in the order of their days, without the default one."""
    rows = query(
        using,
        sql.SQL(
            "SELECT substring(c.relname FROM '[0-9]{{8}}$') AS day"
            " FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid"
            " WHERE i.inhparent = {}::regclass AND c.relname ~ '_[0-9]{{8}}$' ORDER BY 1"
        ).format(sql.Literal(table)),
    )
    return [Partition(table, datetime.strptime(row.day, "%Y%m%d").date()) for row in rows]  # noqa: DTZ007  a date


def older(using: str, age: timedelta) -> list[Partition]:
    """Return the partitions of both tables whose rows are all older than `age`."""
    oldest = ids.first_of(nodes.clock(using) - age)
    return [
        partition
        for table in PARTITIONED
        for partition in existing(using, table)
        if partition.bounds[1] <= oldest
    ]


def count_in_default(using: str) -> dict[str, int]:
    """Return by table the number of rows in its default partition, at most COUNT_CAP.

    Tables without such rows are left out. The rows had no partition for their day.
    """
    counted = {
        table: query(
            using,
            f"SELECT count(*) AS rows FROM (SELECT FROM {table}_default LIMIT %s) AS t",
            [COUNT_CAP],
        )[0].rows
        for table in PARTITIONED
    }
    return {table: count for table, count in counted.items() if count}


def format_count(rows: int) -> str:
    """Return a number of rows as text, at COUNT_CAP with "or more": "10,000 rows or more"."""
    return f"{rows:,} rows{' or more' if rows >= COUNT_CAP else ''}"
