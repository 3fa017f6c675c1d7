-- Make runs due now for which a signal is there, or whose children have ended.
-- Event: none. With the jobs locked by lock_runs.sql in this transaction no run is missed: a run that suspends has its job locked, so either it
--   committed before the lock, and this snapshot shows what it waits for, or it begins after this commit, and suspend_run.sql finds the signal.
--   Without that lock this snapshot may miss a run that has just suspended: if it does not come back, the caller tries again with the lock.
-- Parameters: run_ids bigint[], is_alone boolean (true: a transaction of its own, for one run whose job is not locked. It wakes the waiters of
--   the consumer as notify.sql does, and its commit does not wait for the disk, because a sweep finds what a crash of the server loses),
--   database_channel text.
-- Returns: run_id, consumer_id, notified (number of waiters that were woken) of each run that is due now. A run in flight, or one that waits for a retry, finds its signals by itself.
-- Locks: the jobs. Index: job, run and batch primary key, signal pulljobs_signal_waiting.
WITH relaxed AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'off', true)
    WHERE %(is_alone)s::boolean
),
transaction AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid
    WHERE (SELECT count(*) FROM relaxed) >= 0
),
${moment_after_id},
woken AS (
    UPDATE pulljobs_job AS job
    SET available_at = moment.now
    FROM moment, pulljobs_run AS run
    WHERE job.id = ANY(%(run_ids)s::bigint[])
        AND run.id = job.id
        AND coalesce(run.message_id, job.message_id) = job.message_id  -- else it begins again for that message
        AND job.state = 'QUEUED'
        AND job.retry_count = 0
        AND job.available_at > moment.now
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
    RETURNING job.id, job.consumer_id
),
known AS (
    UPDATE pulljobs_signal
    SET is_new = false
    WHERE consumed_at IS NULL
        AND is_new
        AND run_id = ANY(CASE WHEN %(is_alone)s::boolean THEN ARRAY(SELECT id FROM woken) ELSE %(run_ids)s::bigint[] END)
)
SELECT
    id AS run_id,
    consumer_id,
    CASE WHEN %(is_alone)s::boolean THEN (
        SELECT count(pg_notify(%(database_channel)s::text, waiter.consumer_id::text))
        FROM pulljobs_pull_waiter AS waiter
        WHERE waiter.consumer_id = woken.consumer_id AND waiter.waiting_until > clock_timestamp()
    ) END AS notified
FROM woken
