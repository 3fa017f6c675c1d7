-- Lock jobs that make room for another of their key, if nobody has claimed them since.
-- Event: none; before kill.sql and replace.sql.
-- Parameters: job_ids bigint[].
-- Returns: job_id of those that are QUEUED still.
-- Locks: the jobs, in order of id, waiting for claims to end. Index: primary key.
SELECT id AS job_id
FROM pulljobs_job
WHERE id = ANY(%(job_ids)s::bigint[]) AND state = 'QUEUED'
ORDER BY id
FOR UPDATE
