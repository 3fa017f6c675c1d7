-- Lock the jobs of runs before wake_runs.sql, as lock_runs.sql does, but wait for no other session.
-- Event: none.
-- Parameters: run_ids bigint[].
-- Returns: run_id of those whose jobs are locked now or do not exist.
-- Locks: the jobs, in order of id, SKIP LOCKED. Index: job primary key.
WITH locked AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = ANY(%(run_ids)s::bigint[])
    ORDER BY id
    FOR NO KEY UPDATE SKIP LOCKED
)
SELECT run_id
FROM unnest(%(run_ids)s::bigint[]) AS run_id
WHERE run_id IN (SELECT id FROM locked)
    OR (SELECT id FROM pulljobs_job WHERE id = run_id) IS NULL
