-- Lock jobs that give way to another job of their key, if they were not claimed in between.
-- Event: none; before kill.sql and replace.sql.
-- Parameters: job_ids bigint[].
-- Returns: job_id of those that are still QUEUED.
-- Locks: the jobs, in order of id, waiting for claims to end. Index: primary key.
SELECT id AS job_id
FROM pulljobs_job
WHERE id = ANY(%(job_ids)s::bigint[]) AND state = 'QUEUED'
ORDER BY id
FOR UPDATE
