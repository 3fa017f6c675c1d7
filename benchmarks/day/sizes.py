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
DEAD: Final = """
SELECT n_dead_tup FROM pg_stat_user_tables WHERE relid = 'pulljobs_job'::regclass
"""

Look = dict[str, float]


def tables() -> Look:
    return {"partitions": _number(PARTITIONS), **_mib(MEASURED)}


def indexes() -> Look:
    """Of the job table, one by one."""
    return _mib(INDEXES)


def live() -> int:
    """Jobs that are not settled. Counted: idle sessions tell their statistics ten seconds late."""
    return _number("SELECT count(*) FROM pulljobs_job")


def dead() -> int:
    """Dead rows of the job table, by the server's statistics."""
    return _number(DEAD)


def memory(worker: int) -> Look:
    """What each process of a worker has for itself: first the supervisor, then as they started."""
    root = psutil.Process(worker)
    children = sorted(root.children(recursive=True), key=lambda child: child.create_time())
    sizes = filter(None, map(_own_mib, (root, *children)))
    return {f"process {number}": size for number, size in enumerate(sizes, 1)}


def _own_mib(process: psutil.Process) -> float | None:
    """None: it has ended since it was listed."""
    try:
        return process.memory_full_info().uss / MIB
    except psutil.NoSuchProcess:
        return None


def highest(looks: list[Look]) -> Look:
    """A process may not be there yet at the first."""
    names = dict.fromkeys(name for look in looks for name in look)
    return {name: max(look.get(name, 0.0) for look in looks) for name in names}


def _mib(text: str) -> Look:
    return {str(name): int(str(size)) / MIB for name, size in query(text)}


def _number(text: str) -> int:
    [(number,)] = query(text)
    return int(str(number))
