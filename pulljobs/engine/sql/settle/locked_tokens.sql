-- Lock the rate limits to which released jobs give tokens back, and return the jobs whose limits another transaction has locked.
-- Event: none; before finish.sql releases the other jobs, in the same transaction.
-- Parameters: job_ids bigint[] (to be released, and not started).
-- Returns: id of each job of which a bucket, or the row of the key with its tokens, could not be locked.
-- Locks: the buckets and the rows of the keys, skipping those of other transactions. Index: job, consumer and bucket primary key, flow key.
WITH released AS MATERIALIZED (
    SELECT job.id, job.consumer_id, job.turn_key, consumer.limit_group_id
    FROM unnest(%(job_ids)s::bigint[]) AS asked (id)
    CROSS JOIN LATERAL (
        -- One by one: a join might scan the table; here and below.
        SELECT id, consumer_id, turn_key
        FROM pulljobs_job
        WHERE id = asked.id
        LIMIT 1
    ) AS job
    CROSS JOIN LATERAL (
        SELECT limit_group_id
        FROM pulljobs_consumer
        WHERE id = job.consumer_id
        LIMIT 1
    ) AS consumer
),
paid AS MATERIALIZED (
    SELECT id, consumer_id, 0::bigint AS group_id
    FROM released
    UNION ALL
    SELECT id, 0, limit_group_id
    FROM released
    WHERE limit_group_id IS NOT NULL
),
bucket AS MATERIALIZED (
    SELECT asked.consumer_id, asked.group_id, row.consumer_id IS NULL AS is_locked
    FROM (SELECT DISTINCT consumer_id, group_id FROM paid) AS asked
    CROSS JOIN LATERAL (
        SELECT
        FROM pulljobs_flow_bucket
        WHERE consumer_id = asked.consumer_id AND group_id = asked.group_id
        LIMIT 1
    ) AS known
    LEFT JOIN LATERAL (
        SELECT consumer_id
        FROM pulljobs_flow_bucket
        WHERE consumer_id = asked.consumer_id AND group_id = asked.group_id
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS row ON true
),
flow_key AS MATERIALIZED (
    SELECT asked.consumer_id, asked.turn_key, row.consumer_id IS NULL AS is_locked
    FROM (SELECT DISTINCT consumer_id, turn_key FROM released WHERE turn_key IS NOT NULL) AS asked
    CROSS JOIN LATERAL (
        SELECT
        FROM pulljobs_flow_key
        WHERE consumer_id = asked.consumer_id AND key = asked.turn_key AND tokens IS NOT NULL
        LIMIT 1
    ) AS known
    LEFT JOIN LATERAL (
        SELECT consumer_id
        FROM pulljobs_flow_key
        WHERE consumer_id = asked.consumer_id AND key = asked.turn_key
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS row ON true
)
SELECT paid.id
FROM paid
JOIN bucket USING (consumer_id, group_id)
WHERE bucket.is_locked
UNION
SELECT released.id
FROM released
JOIN flow_key USING (consumer_id, turn_key)
WHERE flow_key.is_locked
