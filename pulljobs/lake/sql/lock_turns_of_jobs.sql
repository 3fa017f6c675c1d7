-- Lock the keys of jobs given by their ids, where claims of the consumer go by key.
-- Event: none; a statement before reclaim.sql, which then sees what was claimed before the lock.
-- Parameters: consumer_id bigint, job_ids bigint[].
-- Returns: nothing.
-- Locks: the keys' rows, in order, which are created if they are missing. Index: job primary key, flow key.
INSERT INTO pulljobs_flow_key AS row (consumer_id, key)
SELECT DISTINCT job.consumer_id, job.turn_key
FROM unnest(%(job_ids)s::bigint[]) AS asked (job_id)
CROSS JOIN LATERAL (
    -- One by one: a join might scan the table.
    SELECT consumer_id, turn_key
    FROM pulljobs_job
    WHERE id = asked.job_id
        AND consumer_id = %(consumer_id)s::bigint
        AND turn_key IS NOT NULL
        AND state = 'QUEUED'
    LIMIT 1
) AS job
ORDER BY job.consumer_id, job.turn_key
ON CONFLICT (consumer_id, key) DO UPDATE
SET writer = pg_current_xact_id()
