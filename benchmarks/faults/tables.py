"""Tables of pulljobs at the end of a run."""

from collections import defaultdict
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, NamedTuple

import psycopg

from benchmarks.faults.claim_rates import TimedClaim

CLAIMS: Final = """
SELECT DISTINCT ON (job_id, lease_token) consumer_id, claimed_at, released_at, job_id, created_at
FROM (
    SELECT
        job_id, lease_token, consumer_id, date_part('epoch', claimed_at) AS claimed_at,
        NULL::float8 AS released_at,
        CASE WHEN deliveries = 1 THEN date_part('epoch', created_at) END AS created_at
    FROM pulljobs_archived_job
    WHERE claimed_at IS NOT NULL
    UNION ALL
    SELECT
        job_id, lease_token, settled.consumer_id, date_part('epoch', claimed_at),
        CASE WHEN event = 'release' AND started_at IS NULL THEN date_part('epoch', ended_at) END,
        NULL
    FROM pulljobs_attempt
    JOIN (SELECT DISTINCT job_id, consumer_id FROM pulljobs_archived_job) AS settled USING (job_id)
) AS claim
ORDER BY job_id, lease_token
"""
"""Statement that returns every claim of the settled jobs: the archive has only their last claim."""


class Live(NamedTuple):
    """Row of the job table."""

    state: str
    retry_count: int


class Settled(NamedTuple):
    """Row of the archive."""

    lease_token: str
    state: str
    retry_count: int


@dataclass(frozen=True)
class Tables:
    """Rows at the end of a run, by the id of their job except for the claims."""

    live: dict[int, Live] = field(default_factory=dict)
    archived: dict[int, list[Settled]] = field(default_factory=dict)
    """Settlements of each job in their order."""
    keys: dict[int, str] = field(default_factory=dict)
    """Keys of the jobs that have a key."""
    claims: list[TimedClaim] = field(default_factory=list)
    consumers: dict[int, int] = field(default_factory=dict)
    """Consumers of the settled jobs."""
    clock_offset: float = 0.0
    """Seconds that the database's clock is ahead of the monotonic clock of histories."""

    def __contains__(self, job: int) -> bool:
        return job in self.live or job in self.archived

    def delivered(self, job: int) -> list[Settled]:
        """Return the deliveries of a job in the archive."""
        return [row for row in self.archived.get(job, ()) if row.state == "DELIVERED"]


def read_tables(connection: psycopg.Connection[Any]) -> Tables:
    """Read the jobs, the archive, the keys and the claims."""
    live = connection.execute("SELECT id, state, retry_count FROM pulljobs_job").fetchall()
    rows = connection.execute(
        "SELECT job_id, lease_token::text, state, retry_count"
        " FROM pulljobs_archived_job ORDER BY id"
    ).fetchall()
    archived = defaultdict(list)
    for job, *row in rows:
        archived[job].append(Settled(*row))
    keys = connection.execute(
        "SELECT job_id, key FROM pulljobs_archived_job AS archived"
        " JOIN pulljobs_message AS message ON message.id = archived.message_id"
        " WHERE key IS NOT NULL"
    ).fetchall()
    key_of = dict(keys)
    claims = [
        TimedClaim(*row)._replace(key=key_of.get(row[3]))
        for row in connection.execute(CLAIMS).fetchall()
    ]
    consumers = connection.execute(
        "SELECT DISTINCT job_id, consumer_id FROM pulljobs_archived_job"
    ).fetchall()
    jobs = {job: Live(*row) for job, *row in live}
    return Tables(jobs, archived, key_of, claims, dict(consumers), read_offset(connection))


def read_offset(connection: psycopg.Connection[Any]) -> float:
    """Return how many seconds the database's clock is ahead of the monotonic clock."""
    before = monotonic()
    row = connection.execute("SELECT date_part('epoch', clock_timestamp())").fetchone()
    return float(row[0]) - (before + monotonic()) / 2 if row else 0.0
