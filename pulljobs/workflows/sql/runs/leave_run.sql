-- Note that a run waits for a worker which accepts its version.
-- Event: none; in the transaction that releases the job, which has it locked.
-- Parameters: run_id bigint.
-- Returns: nothing.
-- Locks: none but the job's. Index: run and job primary key.
UPDATE pulljobs_run
SET waiting_consumer = (SELECT consumer_id FROM pulljobs_job WHERE id = %(run_id)s::bigint)
WHERE id = %(run_id)s::bigint
