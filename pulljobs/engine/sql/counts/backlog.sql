-- Count what consumers have, by what it waits for, in one snapshot.
-- Event: none.
-- Parameters: consumer_ids bigint[], cap int: no count goes above it.
-- Returns a row for each: consumer_id, ready, delayed, blocked (behind their keys), in_flight, dead (int8), oldest_ready_at (NULL:
--   nothing is ready), blocked_is_least boolean (there may be more: not all that might be blocked was looked at).
-- Locks: none. Index: pulljobs_job_claim, pulljobs_job_key, pulljobs_job_dead, primary key; for a count not many more than cap
--   rows are read, for blocked ones twice as many.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
consumer (id) AS MATERIALIZED (
    SELECT unnest(%(consumer_ids)s::bigint[])
),
found (consumer_id, priority) AS (
    SELECT consumer.id, job.priority
    FROM consumer
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = consumer.id
        ORDER BY priority DESC
        LIMIT 1
    ) AS job
    UNION ALL
    SELECT found.consumer_id, job.priority
    FROM found
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = found.consumer_id AND priority < found.priority
        ORDER BY priority DESC
        LIMIT 1
    ) AS job
)
SELECT
    consumer.id AS consumer_id,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM found
            CROSS JOIN LATERAL (
                SELECT
                FROM pulljobs_job
                WHERE consumer_id = consumer.id
                    AND priority = found.priority
                    AND available_at <= (SELECT now FROM clock)
                    AND state = 'QUEUED'
                ORDER BY available_at, id
                LIMIT %(cap)s::int
            ) AS job
            WHERE found.consumer_id = consumer.id
            LIMIT %(cap)s::int
        ) AS job
    ) AS ready,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM found
            CROSS JOIN LATERAL (
                SELECT
                FROM pulljobs_job
                WHERE consumer_id = consumer.id
                    AND priority = found.priority
                    AND available_at > (SELECT now FROM clock)
                    AND state = 'QUEUED'
                ORDER BY available_at, id
                LIMIT %(cap)s::int
            ) AS job
            WHERE found.consumer_id = consumer.id
            LIMIT %(cap)s::int
        ) AS job
    ) AS delayed,
    blocked.count AS blocked,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pulljobs_lease AS lease
            CROSS JOIN unnest(lease.job_ids) AS member (job_id)
            CROSS JOIN LATERAL (
                SELECT
                FROM pulljobs_job
                WHERE id = member.job_id AND lease_token = lease.lease_token
                LIMIT 1
            ) AS job
            WHERE lease.consumer_id = consumer.id
            LIMIT %(cap)s::int
        ) AS job
    ) AS in_flight,
    dead.count AS dead,
    (
        SELECT min(job.available_at)
        FROM found
        CROSS JOIN LATERAL (
            SELECT available_at
            FROM pulljobs_job
            WHERE consumer_id = consumer.id
                AND priority = found.priority
                AND available_at <= (SELECT now FROM clock)
                AND state = 'QUEUED'
            ORDER BY available_at, id
            LIMIT 1
        ) AS job
        WHERE found.consumer_id = consumer.id
    ) AS oldest_ready_at,
    blocked.is_least AS blocked_is_least
FROM consumer
CROSS JOIN LATERAL (
    SELECT count(*) AS count
    FROM (
        SELECT
        FROM pulljobs_job
        WHERE consumer_id = consumer.id AND reason IS NOT NULL
        ORDER BY id
        LIMIT %(cap)s::int
    ) AS job
) AS dead
CROSS JOIN LATERAL (
    SELECT
        least(looked.blocked, %(cap)s::int) AS count,
        looked.jobs >= 2 * %(cap)s::int AND looked.blocked < %(cap)s::int AS is_least
    FROM (
        SELECT count(*) AS jobs, count(*) FILTER (WHERE job.available_at IS NULL AND job.state = 'QUEUED') AS blocked
        FROM (
            (
                -- Few are dead: of what has no time the others are blocked.
                SELECT job.*
                FROM found
                CROSS JOIN LATERAL (
                    SELECT available_at, state
                    FROM pulljobs_job
                    WHERE consumer_id = consumer.id
                        AND priority = found.priority
                        AND available_at IS NULL
                    ORDER BY id
                    LIMIT 2 * %(cap)s::int
                ) AS job
                WHERE found.consumer_id = consumer.id AND dead.count < %(cap)s::int
                LIMIT 2 * %(cap)s::int
            )
            UNION ALL
            (
                -- Many are: what is blocked is among the living that have a key.
                SELECT available_at, state
                FROM pulljobs_job
                WHERE consumer_id = consumer.id
                    AND key IS NOT NULL
                    AND reason IS NULL
                    AND dead.count >= %(cap)s::int
                ORDER BY key, id
                LIMIT 2 * %(cap)s::int
            )
        ) AS job
    ) AS looked
) AS blocked
