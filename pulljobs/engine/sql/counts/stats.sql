-- Count the jobs of a consumer by what they wait for, in one snapshot.
-- Event: none.
-- Parameters: consumer_id bigint, cap int: no count goes above it.
-- Returns one row: ready, delayed, in_flight, dead (int8), oldest_ready_seconds (float8, NULL: nothing ready), blocked (int8,
--   behind their keys).
-- Locks: none. Index: pulljobs_job_claim, pulljobs_job_dead, pulljobs_job_key, primary key; for a count not many more than cap
--   rows are read, but for blocked ones all that have a key.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
found (priority) AS (
    (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
        ORDER BY priority DESC
        LIMIT 1
    )
    UNION ALL
    SELECT job.priority
    FROM found
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint AND priority < found.priority
        ORDER BY priority DESC
        LIMIT 1
    ) AS job
),
ready AS (
    SELECT job.available_at
    FROM found
    CROSS JOIN LATERAL (
        SELECT available_at
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = found.priority
            AND available_at <= (SELECT now FROM clock)
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT %(cap)s::int
    ) AS job
    LIMIT %(cap)s::int
),
delayed AS (
    SELECT
    FROM found
    CROSS JOIN LATERAL (
        SELECT
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = found.priority
            AND available_at > (SELECT now FROM clock)
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT %(cap)s::int
    ) AS job
    LIMIT %(cap)s::int
),
in_flight AS (
    SELECT
    FROM pulljobs_lease AS lease
    CROSS JOIN unnest(lease.job_ids) AS member (job_id)
    CROSS JOIN LATERAL (
        SELECT
        FROM pulljobs_job
        WHERE id = member.job_id AND lease_token = lease.lease_token
        LIMIT 1
    ) AS job
    WHERE lease.consumer_id = %(consumer_id)s::bigint
    LIMIT %(cap)s::int
),
blocked AS (
    SELECT
    FROM pulljobs_job
    WHERE consumer_id = %(consumer_id)s::bigint
        AND key IS NOT NULL
        AND reason IS NULL
        AND (available_at <= 'infinity') IS NOT TRUE
        AND state = 'QUEUED'
    ORDER BY key, id
    LIMIT %(cap)s::int
),
dead AS (
    SELECT
    FROM pulljobs_job
    WHERE consumer_id = %(consumer_id)s::bigint AND reason IS NOT NULL
    ORDER BY id
    LIMIT %(cap)s::int
),
oldest AS (
    SELECT min(job.available_at) AS available_at
    FROM found
    CROSS JOIN LATERAL (
        SELECT available_at
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = found.priority
            AND available_at <= (SELECT now FROM clock)
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT 1
    ) AS job
)
SELECT
    (SELECT count(*) FROM ready) AS ready,
    (SELECT count(*) FROM delayed) AS delayed,
    (SELECT count(*) FROM in_flight) AS in_flight,
    (SELECT count(*) FROM dead) AS dead,
    extract(epoch FROM clock.now - oldest.available_at)::float8 AS oldest_ready_seconds,
    (SELECT count(*) FROM blocked) AS blocked
FROM clock, oldest
