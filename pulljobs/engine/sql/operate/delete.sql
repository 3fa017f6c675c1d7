-- Delete DEAD jobs; their history stays in the archive.
-- Event: delete.
-- Parameters: job_ids bigint[].
-- Returns: job_id of those deleted.
-- Locks: the jobs, in order of id. Index: primary key.
WITH dead AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND state = 'DEAD'
    ORDER BY id
    FOR UPDATE
)
DELETE FROM pulljobs_job AS job
USING dead
WHERE job.id = dead.id AND job.state = 'DEAD'
RETURNING job.id AS job_id
