-- Note that a run no longer waits for its children, so that their batch does not end another wait or a snooze.
-- Event: none; in the transaction of write_step.sql that ends their step, which has the job locked.
-- Parameters: run_id bigint.
-- Returns: nothing.
-- Locks: none but the job's. Index: run primary key.
UPDATE pulljobs_run
SET waiting_batch = NULL
WHERE id = %(run_id)s::bigint AND waiting_batch IS NOT NULL
