"""Leases that no reaper has ended in time."""

from datetime import datetime, timedelta
from typing import Final

from pulljobs.storage.statements import query

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
