"""Leases of claims: look-up by the request id of a pull, renewal, and the count of expired ones."""

import time
from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from pulljobs.engine.encodings import array
from pulljobs.engine.outcomes import Held, held_columns
from pulljobs.storage.rows import HeldJob, Taken
from pulljobs.storage.statements import query, run
from pulljobs.storage.transactions import retrying

LEASE_PAUSES: Final = (0.0, 0.02, 0.06, 0.2)
"""Seconds before each further attempt to renew leases that other transactions had locked."""
RENEWAL_SECONDS: Final = 10.0
"""Time in seconds after which a statement of a renewal outside of loops is cancelled."""

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


def requested(using: str, consumer_id: int, request_id: str) -> tuple[Taken, list[HeldJob]] | None:
    """Return the lease of the pull with this request id and the jobs that it holds, or None.

    `forget_request` returns False from then on, because a repeat has the jobs.
    """
    rows = run(using, "requested", {"consumer_id": consumer_id, "request_id": request_id})
    if not rows:
        return None
    held = [
        HeldJob(row.id, row.message_id, row.priority, row.retry_count, row.deliveries, row.suspect)
        for row in rows
        if row.id is not None
    ]
    return Taken(rows[0].lease_token, rows[0].leased_until), held


def forget_request(using: str, token: UUID) -> bool:
    """Clear the request id of a claim before its jobs are released, so that no repeat gets them.

    Return False if a repeat of the request has got the jobs already, or the lease has ended.
    """
    return bool(run(using, "forget_request", {"lease_token": token}))


def renew(
    using: str,
    held: Sequence[Held],
    lease_duration: timedelta | None = None,
    *,
    running: Collection[int] | None = None,
) -> dict[Held, datetime]:
    """Renew leases and return the new `leased_until` of each job that is held.

    By default each lasts the `lease_duration` of its consumer, from now. A job that is missing in
    the result is lost, or at the hard end of its claim, or another transaction had its lease locked
    at each of several attempts: then `still_held` returns it. `running` has the ids of jobs whose
    handlers run: if the host crashes, the reaper charges only these.
    """
    if not held:
        return {}
    renewed = _renew_free(using, held, lease_duration, running)
    for pause in LEASE_PAUSES:
        missing = [job for job in held if job not in renewed]
        if not missing:
            break
        # Another renewal may have moved these jobs to a lease row that is not visible here yet, or
        # has their lease locked for the moment.
        if pause and not (missing := list(still_held(using, missing))):
            break
        time.sleep(pause)
        renewed |= _renew_free(using, missing, lease_duration, running)
    return renewed


def _renew_free(
    using: str,
    held: Sequence[Held],
    lease_duration: timedelta | None,
    running: Collection[int] | None,
) -> dict[Held, datetime]:
    """Renew the leases that no other transaction has locked. Return `leased_until` by job."""
    params = {
        **held_columns(held),
        "lease_duration": lease_duration,
        "running": None if running is None else array(running),
    }
    rows = retrying(using, lambda: run(using, "renew", params, seconds=RENEWAL_SECONDS))
    return {Held(row.job_id, row.lease_token): row.leased_until for row in rows}


def still_held(using: str, held: Sequence[Held]) -> set[Held]:
    """Return those of the jobs that are still held under a lease that can be renewed."""
    rows = run(using, "still_held", held_columns(held), seconds=RENEWAL_SECONDS)
    return {Held(row.job_id, row.lease_token) for row in rows}


def note_running(using: str, node_id: UUID, running: Collection[int]) -> None:
    """Store in each lease which of its jobs a hung node runs.

    If the lease ends, the reaper charges only these. A lease without a running job is not written.
    """
    run(using, "note_running", {"node_id": node_id, "running_ids": list(running)})


def count_expired(using: str, age: timedelta) -> tuple[int, datetime | None]:
    """Return how many leases ended longer ago than `age` and still hold jobs, and the oldest end.

    A lease that was renewed while its last job was settled stays without jobs, and blocks nothing.
    """
    [row] = query(using, _EXPIRED, [age])
    return row.leases, row.oldest
