-- Lock jobs that are to be settled, and return those that another transaction has locked.
-- Event: none; settling the others is finish.sql, in the same transaction.
-- Parameters: job_ids bigint[].
-- Returns: id of each job that exists and could not be locked.
-- Locks: the jobs, skipping those of other transactions. Index: primary key.
WITH free AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = ANY(%(job_ids)s::bigint[])
    FOR UPDATE SKIP LOCKED
)
SELECT id
FROM pulljobs_job
WHERE id = ANY(%(job_ids)s::bigint[]) AND id NOT IN (SELECT id FROM free)
