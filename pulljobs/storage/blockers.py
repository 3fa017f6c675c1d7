"""What keeps PostgreSQL from doing its part: for `doctor`, on no path that jobs take."""

from datetime import timedelta
from typing import Any, Final, NamedTuple

from django.db import connections

from pulljobs.storage.partitions import PARTITIONED

QUERY_CHARS: Final = 80
COUNT_CAP: Final = 10_000


class Pin(NamedTuple):
    """Something that keeps dead rows from being cleaned away."""

    kind: str
    name: str
    """A pid, or a name."""
    seconds: float | None
    what: str


_PINS: Final = """
SELECT
    'session',
    pid::text,
    extract(epoch FROM clock_timestamp() - xact_start)::float8,
    concat_ws(' ', state, nullif(application_name, ''), left(regexp_replace(query, '\\s+', ' ', 'g'), %(chars)s))
FROM pg_stat_activity
WHERE (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
    AND datname = current_database()
    AND pid <> pg_backend_pid()
    -- the snapshot of a vacuum keeps nothing, however long that takes
    AND pid NOT IN (SELECT pid FROM pg_stat_progress_vacuum)
    AND xact_start < clock_timestamp() - %(age)s
UNION ALL
SELECT 'standby', pid::text, NULL, concat('hot_standby_feedback of ', application_name)
FROM pg_stat_replication
WHERE backend_xmin IS NOT NULL AND age(backend_xmin) > 10000000
UNION ALL
SELECT 'prepared transaction', gid, extract(epoch FROM clock_timestamp() - prepared)::float8, concat('of ', owner)
FROM pg_prepared_xacts
WHERE database = current_database() AND prepared < clock_timestamp() - %(age)s
UNION ALL
SELECT 'replication slot', slot_name, NULL, 'inactive'
FROM pg_replication_slots
WHERE NOT active AND xmin IS NOT NULL  -- catalog_xmin keeps rows of the catalog alone
ORDER BY 3 DESC NULLS LAST
"""  # noqa: E501

_NOT_OWNED: Final = """
SELECT relname
FROM pg_class
WHERE relkind IN ('r', 'p')
    AND starts_with(relname, 'pulljobs_')
    AND pg_table_is_visible(oid)
    AND NOT pg_has_role(relowner, 'USAGE')
ORDER BY relname
"""


def pins(using: str, age: timedelta) -> list[Pin]:
    """Snapshots and transactions of that age; of roles that may not look, only one's own."""
    return [Pin(*row) for row in _rows(using, _PINS, {"age": age, "chars": QUERY_CHARS})]


def not_owned(using: str) -> list[str]:
    """Tables that this role may not make or drop partitions of."""
    return [name for (name,) in _rows(using, _NOT_OWNED)]


def in_default(using: str) -> dict[str, int]:
    """Rows that found no partition for their day, by table; no count goes above COUNT_CAP."""
    counted = {
        table: _rows(
            using, f"SELECT count(*) FROM (SELECT FROM {table}_default LIMIT %s) AS t", cap
        )
        for table in PARTITIONED
        for cap in [[COUNT_CAP]]
    }
    return {table: count for table, [(count,)] in counted.items() if count}


def counted(rows: int) -> str:
    """Of `in_default`, in words."""
    return f"{rows:,} rows{' or more' if rows >= COUNT_CAP else ''}"


def _rows(using: str, text: str, params: Any = None) -> list[tuple[Any, ...]]:
    with connections[using].cursor() as cursor:
        cursor.execute(text, params)
        return list(cursor.fetchall())
