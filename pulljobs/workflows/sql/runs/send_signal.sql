-- Insert a signal for a run that has not ended, and, in a transaction of its own, wake the run if it waits for that.
-- Event: none; in the sender's transaction.
-- Parameters: run_id bigint, name text, payload jsonb (NULL: null), dedupe_id text (NULL: none), is_alone boolean (true: a transaction of its own.
--   It wakes the waiters of the consumer as notify.sql does, and its commit does not wait for the disk: flush_commits.sql does so afterwards, while the
--   run resumes. false: the commit waits, also if the dedupe id is known, whose sender may not have come so far), database_channel text.
-- Returns: state of the job, whether the signal is_sent (false if QUEUED or INFLIGHT: its dedupe id is known), and whether the run is_woken (false: wake_runs.sql
--   has to look, because the run may have suspended since this snapshot); notified, commits (of no use); no row: there is no such job.
-- Locks: the job of a run that waits, SKIP LOCKED; it waits for another sender of the same dedupe id. Index: job and run primary key, signal pulljobs_signal_dedupe.
WITH job AS MATERIALIZED (
    SELECT id, state
    FROM pulljobs_job
    WHERE id = %(run_id)s::bigint
),
sent AS (
    INSERT INTO pulljobs_signal (run_id, name, payload, dedupe_id)
    SELECT id, %(name)s::text, %(payload)s::jsonb, %(dedupe_id)s::text
    FROM job
    WHERE state IN ('QUEUED', 'INFLIGHT')
    ON CONFLICT (run_id, dedupe_id) WHERE dedupe_id IS NOT NULL DO NOTHING
    RETURNING id
),
waiting AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job AS job
    WHERE id = (SELECT %(run_id)s::bigint FROM sent WHERE %(is_alone)s::boolean)
        AND state = 'QUEUED'
        AND retry_count = 0
        AND available_at > clock_timestamp()
        AND EXISTS (
            SELECT
            FROM pulljobs_run
            WHERE id = %(run_id)s::bigint
                AND waiting_for = %(name)s::text
                AND coalesce(message_id, job.message_id) = job.message_id  -- else it begins again for that message
        )
    FOR NO KEY UPDATE SKIP LOCKED
),
woken AS (
    UPDATE pulljobs_job
    SET available_at = clock_timestamp()  -- after the insert, so the transaction has its id before: see moment_after_id.sql
    WHERE id = (SELECT id FROM waiting)
    RETURNING consumer_id
)
SELECT
    state,
    EXISTS (SELECT FROM sent) AS is_sent,
    EXISTS (SELECT FROM woken) AS is_woken,
    (
        SELECT count(pg_notify(%(database_channel)s::text, waiter.consumer_id::text))
        FROM woken
        JOIN pulljobs_pull_waiter AS waiter ON waiter.consumer_id = woken.consumer_id AND waiter.waiting_until > clock_timestamp()
    ) AS notified,
    CASE
        WHEN %(is_alone)s::boolean THEN set_config('synchronous_commit', 'off', true)
        WHEN %(dedupe_id)s::text IS NOT NULL AND NOT EXISTS (SELECT FROM sent)
            THEN pg_logical_emit_message(true, 'pulljobs', ''::text)::text  -- as in flush_commits.sql
    END AS commits
FROM job
