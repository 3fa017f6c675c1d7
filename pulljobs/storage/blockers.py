"""Queries for old snapshots, for tables of other owners, and for leases that were not reaped."""

from datetime import datetime, timedelta
from typing import Final, NamedTuple

from pulljobs.storage.partitions import PARTITIONED
from pulljobs.storage.statements import query

QUERY_CHARS: Final = 80
COUNT_CAP: Final = 10_000


class Pin(NamedTuple):
    """Old snapshot or transaction, because of which vacuum can't remove dead rows yet."""

    kind: str
    name: str
    """Process id of a session or standby, or name of a transaction or slot."""
    seconds: float | None
    what: str


_PINS: Final = """
SELECT
    'session' AS kind,
    pid::text AS name,
    extract(epoch FROM clock_timestamp() - xact_start)::float8 AS seconds,
    concat_ws(' ', state, nullif(application_name, ''), left(regexp_replace(query, '\\s+', ' ', 'g'), %(chars)s))
        AS what
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


# OFFSET keeps the planner from joining the tables, which would scan all jobs.
_EXPIRED: Final = """
SELECT count(*) AS leases, min(leased_until) AS oldest
FROM pulljobs_lease AS lease
WHERE leased_until < clock_timestamp() - %s
    AND EXISTS (
        SELECT FROM pulljobs_job AS job
        WHERE job.id = ANY (lease.job_ids) AND job.lease_token = lease.lease_token
        OFFSET 0
    )
"""


def count_expired(using: str, age: timedelta) -> tuple[int, datetime | None]:
    """Return the number of leases that ended before `age` and hold jobs, and the oldest end.

    A lease that was renewed while its last job was settled stays without jobs, and blocks nothing.
    """
    [row] = query(using, _EXPIRED, [age])
    return row.leases, row.oldest


def pins(using: str, age: timedelta) -> list[Pin]:
    """Return what has kept vacuum from removing dead rows for longer than `age`, the oldest first.

    A role without pg_read_all_stats sees only its own sessions.
    """
    return [Pin(**row._asdict()) for row in query(using, _PINS, {"age": age, "chars": QUERY_CHARS})]


def not_owned(using: str) -> list[str]:
    """Return the tables of pulljobs that the connection's role does not own, sorted by name."""
    return [row.relname for row in query(using, _NOT_OWNED)]


def default_isolation(using: str) -> str:
    """Return the isolation level of statements outside of transactions, such as "serializable"."""
    [row] = query(using, "SHOW default_transaction_isolation")
    return str(row.default_transaction_isolation)


def in_default(using: str) -> dict[str, int]:
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


def counted(rows: int) -> str:
    """Return a count of `in_default` as text, such as "10,000 rows or more"."""
    return f"{rows:,} rows{' or more' if rows >= COUNT_CAP else ''}"
