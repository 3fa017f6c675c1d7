-- Free keys without a holder: the first job blocked behind each becomes claimable (all, if the consumer is no longer exclusive), and
-- a key without jobs is deleted.
-- Event: none. In the transaction of lock_keys.sql or stuck_keys.sql, and a statement of its own.
-- Parameters: consumer_ids bigint[], keys text[] (locked, of one length), job_ids bigint[] (queued ones that let go of their key).
-- Returns one row: changed int8, the number of jobs that became claimable plus that of deleted keys.
-- Locks: the jobs, skipping jobs that other transactions have locked. Index: exclusive key, pulljobs_job_key, job primary key.
WITH ${clock_after_id},
free AS MATERIALIZED (
    SELECT row.ctid AS row, row.consumer_id, row.key, consumer.exclusive_keys, next.live
    FROM unnest(%(consumer_ids)s::bigint[], %(keys)s::text[]) AS asked (consumer_id, key)
    CROSS JOIN LATERAL (
        SELECT ctid, *
        FROM pulljobs_exclusive_key
        WHERE consumer_id = asked.consumer_id AND key = asked.key
        LIMIT 1
    ) AS row
    CROSS JOIN LATERAL (
        -- One by one: a join might begin with the consumer and read all of its jobs.
        SELECT exclusive_keys
        FROM pulljobs_consumer
        WHERE id = row.consumer_id
        LIMIT 1
    ) AS consumer
    CROSS JOIN LATERAL (
        SELECT EXISTS (
            SELECT
            FROM pulljobs_job
            WHERE consumer_id = row.consumer_id AND key = row.key AND reason IS NULL
            -- One by one, here and below: without OFFSET the planner may read all jobs into a hash.
            OFFSET 0
        ) AS live
    ) AS next
    WHERE row.holder IS NULL
        OR (
            row.holder = ANY(%(job_ids)s::bigint[])
            -- The job may have been claimed again since.
            AND EXISTS (SELECT FROM pulljobs_job WHERE id = row.holder AND state = 'QUEUED' OFFSET 0)
        )
        OR NOT consumer.exclusive_keys
        OR NOT EXISTS (SELECT FROM pulljobs_job WHERE id = row.holder AND reason IS NULL OFFSET 0)
),
next AS MATERIALIZED (
    SELECT job.id
    FROM free
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulljobs_job
        WHERE consumer_id = free.consumer_id
            AND key = free.key
            AND reason IS NULL
            -- IS NULL, in a form that cannot use the claim index.
            AND (available_at <= 'infinity') IS NOT TRUE
            AND state = 'QUEUED'
        ORDER BY id
        LIMIT CASE WHEN free.exclusive_keys THEN 1 END
        FOR UPDATE SKIP LOCKED
    ) AS job
),
unblocked AS (
    UPDATE pulljobs_job
    SET available_at = (SELECT now FROM clock)
    WHERE id = ANY(ARRAY(SELECT id FROM next)) AND state = 'QUEUED' AND available_at IS NULL
    RETURNING id
),
released AS (
    -- By ctid, which stays while the row is locked: a join might begin with all keys.
    UPDATE pulljobs_exclusive_key
    SET holder = NULL
    WHERE ctid = ANY(ARRAY(SELECT row FROM free WHERE live))
),
forgotten AS (
    DELETE FROM pulljobs_exclusive_key
    WHERE ctid = ANY(ARRAY(SELECT row FROM free WHERE NOT live))
    RETURNING key
)
SELECT (SELECT count(*) FROM unblocked) + (SELECT count(*) FROM forgotten) AS changed
