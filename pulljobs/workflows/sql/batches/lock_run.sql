-- Lock the job of a run in any state, so that it can't suspend before the caller commits.
-- Event: none; before reschedule.sql, in the transaction of the decision.
-- Parameters: run_id bigint.
-- Returns: id of the job. No row: it has ended.
-- Locks: the job. Index: primary key.
SELECT id
FROM pulljobs_job
WHERE id = %(run_id)s::bigint
FOR UPDATE
