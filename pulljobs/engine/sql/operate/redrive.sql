-- Give DEAD jobs a fresh start: queued now, nothing counted, no last error.
-- Event: redrive.
-- Parameters: job_ids bigint[].
-- Returns: job_id, consumer_id of those redriven, batch_id (NULL: no member).
-- Locks: the jobs, in order of id. Index: primary key.
WITH dead AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND state = 'DEAD'
    ORDER BY id
    FOR UPDATE
),
redriven AS (
    UPDATE pulljobs_job AS job
    SET
        state = 'QUEUED',
        reason = NULL,
        error = NULL,
        available_at = clock_timestamp(),
        first_claimed_at = NULL,
        retry_count = 0,
        deliveries = 0
    FROM dead
    WHERE job.id = dead.id AND job.state = 'DEAD'
    RETURNING job.id, job.consumer_id, job.batch_id
),
summed AS (
    INSERT INTO pulljobs_batch_sum (batch_id, dead, redriven)
    SELECT batch_id, -count(*), count(*)
    FROM redriven
    WHERE batch_id IS NOT NULL
    GROUP BY batch_id
)
SELECT id AS job_id, consumer_id, batch_id
FROM redriven
