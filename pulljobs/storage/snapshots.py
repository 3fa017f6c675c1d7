"""Old snapshots and transactions, which keep vacuum from removing dead rows."""

from datetime import timedelta
from typing import Final, NamedTuple

from pulljobs.storage.statements import query

QUERY_CHARS: Final = 80


class OldSnapshot(NamedTuple):
    """Old snapshot or transaction, because of which vacuum can't remove dead rows yet."""

    kind: str
    name: str
    """Process id of a session or standby, or name of a transaction or slot."""
    seconds: float | None
    what: str


_OLD: Final = """
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


def find_old(using: str, age: timedelta) -> list[OldSnapshot]:
    """Return what keeps vacuum from removing dead rows, the oldest first.

    Sessions and prepared transactions are older than `age`, standbys far behind, slots inactive.
    A role without pg_read_all_stats sees only its own sessions.
    """
    return [
        OldSnapshot(**row._asdict())
        for row in query(using, _OLD, {"age": age, "chars": QUERY_CHARS})
    ]
