-- Give a run all its retries again, because it has stored a step since they were used.
-- Event: none; in the transaction of write_step.sql, which has the job locked.
-- Parameters: run_id bigint, lease_token uuid.
-- Returns: nothing.
-- Locks: the job. Index: primary key.
UPDATE pulljobs_job
SET retry_count = 0, deliveries = 1, first_claimed_at = clock_timestamp()
WHERE id = %(run_id)s::bigint AND lease_token = %(lease_token)s::uuid AND state = 'INFLIGHT'
