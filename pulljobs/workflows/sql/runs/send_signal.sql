-- Insert a signal for a run that has not ended.
-- Event: none; in the sender's transaction.
-- Parameters: run_id bigint, name text, payload jsonb (NULL: null), dedupe_id text (NULL: none).
-- Returns: state of the job, and whether the signal is_sent (false with a live state: its dedupe id is known); no row: there is no such job.
-- Locks: none, but it waits for another sender of the same dedupe id. Index: job primary key, signal pulljobs_signal_dedupe.
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
)
SELECT state, EXISTS (SELECT FROM sent) AS is_sent
FROM job
