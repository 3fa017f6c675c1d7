"""What tables, indexes and processes take, in MiB; dead rows."""

from typing import Final

import psutil

from benchmarks.database import query

MIB: Final = 1024 * 1024
MEASURED: Final = """
SELECT 'job', pg_relation_size('pulljobs_job')
UNION ALL
SELECT 'job indexes', pg_indexes_size('pulljobs_job')
UNION ALL
SELECT 'lease', pg_total_relation_size('pulljobs_lease')
UNION ALL
SELECT 'archive and messages', sum(pg_total_relation_size(relid))
FROM unnest('{pulljobs_archived_job, pulljobs_message}'::regclass[]) AS root,
    pg_partition_tree(root)
UNION ALL
SELECT 'waits and nodes',
    pg_total_relation_size('pulljobs_pull_waiter') + pg_total_relation_size('pulljobs_node')
UNION ALL
SELECT 'database', pg_database_size(current_database())
"""
PARTITIONS: Final = """
SELECT count(*)
FROM pg_inherits
WHERE inhparent = ANY('{pulljobs_archived_job, pulljobs_message}'::regclass[])
"""
INDEXES: Final = """
SELECT indexrelid::regclass::text, pg_relation_size(indexrelid)
FROM pg_index
WHERE indrelid = 'pulljobs_job'::regclass
ORDER BY 1
"""
ROWS: Final = """
SELECT n_dead_tup, n_tup_del FROM pg_stat_user_tables WHERE relid = 'pulljobs_job'::regclass
"""

Look = dict[str, float]


def tables() -> Look:
    [(partitions,)] = query(PARTITIONS)
    return {"partitions": int(str(partitions)), **_mib(MEASURED)}


def indexes() -> Look:
    """Of the job table, one by one."""
    return _mib(INDEXES)


def dead_and_deleted() -> tuple[int, int]:
    """Rows of the job table: those that are dead now, and all that ever were deleted.

    By the server's statistics, which sessions tell about once a second.
    """
    [(dead, deleted)] = query(ROWS)
    return int(str(dead)), int(str(deleted))


def memory(worker: int) -> Look:
    """What each process of a worker has for itself: first the supervisor, then as they started."""
    root = psutil.Process(worker)
    children = sorted(root.children(recursive=True), key=lambda child: child.create_time())
    return {
        f"process {number}": process.memory_full_info().uss / MIB
        for number, process in enumerate((root, *children), 1)
    }


def highest(looks: list[Look]) -> Look:
    """A process may not be there yet at the first."""
    names = dict.fromkeys(name for look in looks for name in look)
    return {name: max(look.get(name, 0.0) for look in looks) for name in names}


def _mib(text: str) -> Look:
    return {str(name): int(str(size)) / MIB for name, size in query(text)}
