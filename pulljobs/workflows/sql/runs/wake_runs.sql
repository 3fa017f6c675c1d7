-- Make runs due now for which a signal is there, or whose children have ended.
-- Event: none; the jobs are locked by lock_runs.sql in this transaction. A run that suspends has its job locked: either it committed before the
--   lock, and this snapshot shows what it waits for, or it begins after this commit, and suspend_run.sql finds the signal.
-- Parameters: run_ids bigint[].
-- Returns: consumer_id of each run that is due now. A run in flight, or one that waits for a retry, finds its signals by itself.
-- Locks: none but theirs. Index: job, run and batch primary key, signal pulljobs_signal_waiting.
WITH known AS (
    UPDATE pulljobs_signal
    SET is_new = false
    WHERE run_id = ANY(%(run_ids)s::bigint[]) AND consumed_at IS NULL AND is_new
),
transaction AS MATERIALIZED (
    -- The clock is read after the transaction has its id: claims rely on that order (low_water_marks.py).
    SELECT pg_current_xact_id() AS xid
),
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
    FROM transaction
    WHERE xid IS NOT NULL
)
UPDATE pulljobs_job AS job
SET available_at = clock.now
FROM clock, pulljobs_run AS run
WHERE job.id = ANY(%(run_ids)s::bigint[])
    AND run.id = job.id
    AND job.state = 'QUEUED'
    AND job.retry_count = 0
    AND job.available_at > clock.now
    AND (
        EXISTS (
            SELECT
            FROM pulljobs_signal
            WHERE run_id = run.id AND name = run.waiting_for AND consumed_at IS NULL
        )
        OR EXISTS (
            SELECT
            FROM pulljobs_batch
            WHERE id = run.waiting_batch AND completed_at IS NOT NULL
        )
    )
RETURNING job.consumer_id
