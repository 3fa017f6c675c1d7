-- Lock the jobs of runs before wake_runs.sql, whose snapshot then has what their holders committed.
-- Event: none.
-- Parameters: run_ids bigint[].
-- Returns: id of those that are live.
-- Locks: the jobs, in order of id, waiting. Index: job primary key.
SELECT id
FROM pulljobs_job
WHERE id = ANY(%(run_ids)s::bigint[])
ORDER BY id
FOR NO KEY UPDATE
