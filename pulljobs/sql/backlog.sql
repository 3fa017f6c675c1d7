-- Count what consumers have, by what it waits for, in one snapshot.
-- Event: none.
-- Parameters: consumer_ids bigint[], cap int: no count goes above it.
-- Returns a row for each: consumer_id, ready, delayed, parked (behind their keys), in_flight, dead (int8), oldest_ready_at (NULL:
--   nothing is ready).
-- Locks: none. Index: pulljobs_job_claim, pulljobs_job_dead, primary key; for a count not many more than cap rows are read.
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
    consumer.id,
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
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM found
            CROSS JOIN LATERAL (
                -- What waits behind its key, beside what is dead; no more of both is read.
                SELECT state
                FROM pulljobs_job
                WHERE consumer_id = consumer.id
                    AND priority = found.priority
                    AND available_at IS NULL
                ORDER BY id
                LIMIT %(cap)s::int
            ) AS job
            WHERE found.consumer_id = consumer.id AND job.state = 'QUEUED'
            LIMIT %(cap)s::int
        ) AS job
    ) AS parked,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pulljobs_lease AS lease
            CROSS JOIN unnest(lease.job_ids) AS member (job_id)
            CROSS JOIN LATERAL (
                SELECT
                FROM pulljobs_job
                WHERE id = member.job_id AND lease = lease.token
                LIMIT 1
            ) AS job
            WHERE lease.consumer_id = consumer.id
            LIMIT %(cap)s::int
        ) AS job
    ) AS in_flight,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pulljobs_job
            WHERE consumer_id = consumer.id AND reason IS NOT NULL
            ORDER BY id
            LIMIT %(cap)s::int
        ) AS job
    ) AS dead,
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
    ) AS oldest_ready_at
FROM consumer
