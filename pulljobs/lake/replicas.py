"""Choice of a standby server to read rows from, so that the primary is left to the jobs."""

import os
import time
from typing import Final

from pulljobs.conf import SETTING, settings
from pulljobs.errors import LakeError
from pulljobs.storage.statements import run

PATIENCE_SECONDS: Final = 60.0
"""Longest wait for a replica to catch up."""
POLL_SECONDS: Final = 0.1


def choose_source(using: str) -> str:
    """Return the database alias to read rows from, which has everything that is committed now.

    That is `using`, unless PULLJOBS['LAKE_REPLICA'] names a replica. The call waits until the
    replica has replayed the primary's write-ahead log up to now. Transaction numbers are the same
    on both servers. Raise LakeError if the replica is no standby of this database, or if it stays
    behind.
    """
    if not (replica := settings().LAKE_REPLICA):
        return using
    [primary] = run(using, "primary_position", {})
    deadline = time.monotonic() + PATIENCE_SECONDS
    while behind := _count_bytes_behind(replica, primary.lsn, primary.system_identifier):
        if time.monotonic() > deadline:
            raise LakeError(_describe_lag(replica, behind))
        time.sleep(POLL_SECONDS)
    return replica


def bound_connections(cores: int | None = None) -> int:
    """Return how many connections read at once: LAKE_CONNECTIONS, or else one for each core.

    `cores` are those of Spark's executors, by default those of this machine.
    """
    return settings().LAKE_CONNECTIONS or cores or os.cpu_count() or 1


def _describe_lag(replica: str, behind: int) -> str:
    return (
        f"The replica {replica!r} is {behind:,} bytes of log behind after "
        f"{PATIENCE_SECONDS:.0f} seconds: run the command again when it has caught up, or "
        f"remove {SETTING}['LAKE_REPLICA']."
    )


def _count_bytes_behind(replica: str, lsn: str, system_identifier: int) -> int:
    """Return how many bytes of write-ahead log the replica lacks up to a position, or 0 if none.

    Raise LakeError if it is no standby of the cluster with this identifier.
    """
    [row] = run(replica, "replica_position", {"lsn": lsn})
    if not row.is_standby or row.system_identifier != system_identifier:
        raise LakeError(
            f"{SETTING}['LAKE_REPLICA'] names {replica!r}, which is no standby server of "
            f"{settings().DATABASE!r}: name one, or remove the setting."
        )
    return max(row.bytes_behind or 0, 0)
