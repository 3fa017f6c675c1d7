"""Sizes and numbers of dead rows of tables and partitions, for pages and commands.

They come from PostgreSQL's catalog and counters: no row of the tables is read.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final, NamedTuple

from pulljobs.storage.partitions import Partition
from pulljobs.storage.statements import query

HOT: Final = (
    "pulljobs_job",
    "pulljobs_lease",
    "pulljobs_exclusive_key",
    "pulljobs_bounded_key",
    "pulljobs_flow_bucket",
    "pulljobs_flow_key",
    "pulljobs_publication",
    "pulljobs_scheduled_message",
    "pulljobs_node",
    "pulljobs_pull_waiter",
    "pulljobs_http_client",
)
"""Tables whose rows are changed, so that dead ones are left behind."""


class TableHealth(NamedTuple):
    """Approximate numbers of rows of a table, and its size in bytes with indexes and TOAST."""

    name: str
    live_rows: int
    dead_rows: int
    bytes: int
    vacuumed_at: datetime | None

    @property
    def dead_share(self) -> float:
        return self.dead_rows / max(1, self.live_rows + self.dead_rows)


class PartitionSize(NamedTuple):
    partition: Partition
    rows: int
    """Approximate number of rows."""
    bytes: int


_TABLES: Final = """
SELECT
    relname AS name,
    pg_stat_get_live_tuples(oid) AS live_rows,
    pg_stat_get_dead_tuples(oid) AS dead_rows,
    pg_total_relation_size(oid) AS bytes,
    greatest(pg_stat_get_last_autovacuum_time(oid), pg_stat_get_last_vacuum_time(oid))
        AS vacuumed_at
FROM pg_class
WHERE relname = ANY(%s) AND relkind = 'r' AND pg_table_is_visible(oid)
"""

_PARTITIONS: Final = """
SELECT pg_stat_get_live_tuples(oid) AS rows, pg_total_relation_size(oid) AS bytes
FROM unnest(%s::text[]) WITH ORDINALITY AS wanted (name, ordinal)
LEFT JOIN pg_class ON oid = to_regclass(name)
ORDER BY ordinal
"""


def tables(using: str) -> list[TableHealth]:
    """Return the health of each table in `HOT`, in order. Missing tables are left out."""
    rows = query(using, _TABLES, [list(HOT)])
    tables = {row.name: TableHealth(**row._asdict()) for row in rows}
    return [tables[name] for name in HOT if name in tables]


def sizes(using: str, partitions: Sequence[Partition]) -> list[PartitionSize]:
    """Return the size of each partition, in order. A dropped partition counts as empty."""
    rows = query(using, _PARTITIONS, [[partition.name for partition in partitions]])
    return [
        PartitionSize(partition, row.rows or 0, row.bytes or 0)
        for partition, row in zip(partitions, rows, strict=True)
    ]
