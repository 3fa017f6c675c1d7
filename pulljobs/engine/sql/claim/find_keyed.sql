-- Find the jobs that a claim of an exclusive consumer may begin with, and make the rows of keys that are missing.
-- Event: none; before lock_keys_to_claim.sql and claim_keyed.sql, and not in their transaction, because other claims wait for new rows.
-- Parameters: consumer_id bigint, wanted int, until timestamptz, and those of fragments/priority_walk.sql.
-- Returns one row: started_at, snapshot, the jobs as arrays in the order of a claim (job_ids, keys, job_priorities,
--   available_ats), walked int[] (every priority there is), next_due_seconds float8, when fewer than wanted.
-- Locks: the new key rows, in order of the key. Index: pulljobs_job_claim, exclusive key.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
${priority_walk},
seen AS MATERIALIZED (
    SELECT job.*
    FROM walk
    CROSS JOIN LATERAL (
        SELECT id, key, priority, available_at
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = walk.priority
            AND (available_at, id) > (walk.mark_at, walk.mark_id)
            AND available_at <= least(%(until)s::timestamptz, (SELECT now FROM clock))
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT %(wanted)s::int
    ) AS job
    LIMIT %(wanted)s::int
),
made AS (
    INSERT INTO pulljobs_exclusive_key (consumer_id, key)
    SELECT DISTINCT %(consumer_id)s::bigint, key
    FROM seen
    LEFT JOIN LATERAL (
        -- One by one: a join might scan the table.
        SELECT consumer_id
        FROM pulljobs_exclusive_key
        WHERE consumer_id = %(consumer_id)s::bigint AND key = seen.key
        LIMIT 1
    ) AS known ON true
    WHERE key IS NOT NULL AND known.consumer_id IS NULL
    ORDER BY key
    ON CONFLICT DO NOTHING
)
SELECT
    now() AS started_at,
    pg_current_snapshot()::text AS snapshot,
    ARRAY(SELECT id FROM seen) AS job_ids,
    ARRAY(SELECT key FROM seen) AS keys,
    ARRAY(SELECT priority FROM seen) AS job_priorities,
    ARRAY(SELECT available_at FROM seen) AS available_ats,
    ARRAY(SELECT priority::int FROM walk ORDER BY priority DESC) AS walked,
    CASE
        WHEN (SELECT count(*) FROM seen) < %(wanted)s::int THEN ${seconds_to_next_due}
    END AS next_due_seconds
