"""Sizes of tables, indexes and processes in MiB, and numbers of rows."""

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

Sizes = dict[str, float]
"""Sizes in MiB, or numbers of rows and partitions, by name."""


def read_tables() -> Sizes:
    """Return the sizes of tables and of the database, and the number of partitions."""
    return {"partitions": _number(PARTITIONS), **_mib(MEASURED)}


def read_indexes() -> Sizes:
    """Return the size of each index of the job table."""
    return _mib(INDEXES)


def count_live() -> int:
    """Count the rows of the job table exactly, because its statistics may be ten seconds late."""
    return _number("SELECT count(*) FROM pulljobs_job")


def count_dead() -> int:
    """Return the number of dead rows of the job table, from the statistics of the server."""
    return _number(DEAD)


def read_memory(worker: int) -> Sizes:
    """Return the private memory of each process of a worker, the supervisor first."""
    root = psutil.Process(worker)
    children = sorted(root.children(recursive=True), key=lambda child: child.create_time())
    sizes = filter(None, map(_own_mib, (root, *children)))
    return {f"process {number}": size for number, size in enumerate(sizes, 1)}


def _own_mib(process: psutil.Process) -> float | None:
    """Return the private memory of a process, or None if it has ended."""
    try:
        return process.memory_full_info().uss / MIB
    except psutil.NoSuchProcess:
        return None


def highest(samples: list[Sizes]) -> Sizes:
    """Return the highest value of each size. A size may be missing in early samples."""
    names = dict.fromkeys(name for sample in samples for name in sample)
    return {name: max(sample.get(name, 0.0) for sample in samples) for name in names}


def _mib(text: str) -> Sizes:
    return {str(name): int(str(size)) / MIB for name, size in query(text)}


def _number(text: str) -> int:
    [(number,)] = query(text)
    return int(str(number))
