-- Change when waiting jobs become available.
-- Event: reschedule.
-- Parameters: job_ids bigint[], at timestamptz (NULL, or past: now).
-- Returns: job_id, consumer_id of those that wait for the new time; a blocked job has no time and stays as it is.
-- Locks: the jobs, in order of id. Index: primary key.
WITH waiting AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND state = 'QUEUED' AND available_at IS NOT NULL
    ORDER BY id
    FOR UPDATE
)
UPDATE pulljobs_job AS job
SET
    -- Never in the past: nothing comes back below the low-water marks.
    available_at = greatest(%(at)s::timestamptz, clock_timestamp())
FROM waiting
WHERE job.id = waiting.id AND job.state = 'QUEUED' AND job.available_at IS NOT NULL
RETURNING job.id AS job_id, job.consumer_id
