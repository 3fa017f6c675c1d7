-- Count the jobs of consumers by state, with the times of the oldest and the newest.
-- Event: none.
-- Parameters: consumer_ids bigint[], cap int: no count goes above it.
-- Returns: consumer_id, state, jobs, oldest, newest; no row for a state without jobs. QUEUED by the time available,
--   INFLIGHT by the claim, DEAD by the death of the first and the last by id.
-- Locks: none. Index: pulljobs_job_claim, pulljobs_job_key, pulljobs_job_dead, primary key; for a count not many more than cap
--   rows are read, and those in flight that have a key.
WITH RECURSIVE consumer (id) AS MATERIALIZED (
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
),
queued AS (
    SELECT consumer.id AS consumer_id, counted.*
    FROM consumer
    CROSS JOIN LATERAL (
        SELECT count(*) AS count
        FROM (
            SELECT
            FROM found
            CROSS JOIN LATERAL (
                SELECT
                FROM pulljobs_job
                WHERE consumer_id = consumer.id
                    AND priority = found.priority
                    AND available_at <= 'infinity'
                    AND state = 'QUEUED'
                ORDER BY available_at, id
                LIMIT %(cap)s::int
            ) AS job
            WHERE found.consumer_id = consumer.id
            UNION ALL
            (
                -- What waits behind its key: only looked for where the others are fewer than cap.
                SELECT
                FROM pulljobs_job
                WHERE consumer_id = consumer.id
                    AND key IS NOT NULL
                    AND reason IS NULL
                    AND available_at IS NULL
                    AND state = 'QUEUED'
                ORDER BY key, id
                LIMIT %(cap)s::int
            )
            LIMIT %(cap)s::int
        ) AS job
    ) AS counted
    WHERE count > 0
),
ends AS (
    SELECT found.consumer_id, min(first.available_at) AS oldest, max(last.available_at) AS newest
    FROM found
    CROSS JOIN LATERAL (
        SELECT available_at
        FROM pulljobs_job
        WHERE consumer_id = found.consumer_id
            AND priority = found.priority
            AND available_at <= 'infinity'
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT 1
    ) AS first
    CROSS JOIN LATERAL (
        SELECT available_at
        FROM pulljobs_job
        WHERE consumer_id = found.consumer_id
            AND priority = found.priority
            AND available_at <= 'infinity'
            AND state = 'QUEUED'
        ORDER BY available_at DESC, id DESC
        LIMIT 1
    ) AS last
    GROUP BY found.consumer_id
),
in_flight AS (
    SELECT consumer.id AS consumer_id, held.*
    FROM consumer
    CROSS JOIN LATERAL (
        SELECT count(*) AS count, min(claimed_at) AS oldest, max(claimed_at) AS newest
        FROM (
            SELECT lease.claimed_at
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
    ) AS held
    WHERE count > 0
),
dead AS (
    SELECT consumer.id AS consumer_id, counted.count, died.oldest, died.newest
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
    ) AS counted
    CROSS JOIN LATERAL (
        SELECT min(archived.settled_at) AS oldest, max(archived.settled_at) AS newest
        FROM pulljobs_archived_job AS archived
        WHERE archived.state = 'DEAD' AND archived.job_id = ANY(ARRAY[
            (
                SELECT id
                FROM pulljobs_job
                WHERE consumer_id = consumer.id AND reason IS NOT NULL
                ORDER BY id
                LIMIT 1
            ),
            (
                SELECT id
                FROM pulljobs_job
                WHERE consumer_id = consumer.id AND reason IS NOT NULL
                ORDER BY id DESC
                LIMIT 1
            )
        ])
    ) AS died
    WHERE counted.count > 0
)
SELECT consumer_id, 'QUEUED' AS state, count AS jobs, oldest, newest
FROM queued
LEFT JOIN ends USING (consumer_id)
UNION ALL
SELECT consumer_id, 'INFLIGHT', count, oldest, newest
FROM in_flight
UNION ALL
SELECT consumer_id, 'DEAD', count, oldest, newest
FROM dead
