-- Record what a suspended run waits for, and make it due now if that has come meanwhile.
-- Event: none; in the transaction of the suspension, which has the job locked since finish.sql. The snapshot of this statement is newer than
--   that lock: see wake_runs.sql.
-- Parameters: run_id bigint, name text, number, position int, kind, function text (of the pending step), is_bounded boolean (true: the step is
--   due when the job is; false: never), children bigint[] (that the step waits for; NULL: none), waiting_for text, waiting_batch bigint (NULL: none).
-- Returns: consumer_id if the run is due now; else no row.
-- Locks: none but the job's. Index: job, run and step primary key, signal pulljobs_signal_waiting.
WITH job AS MATERIALIZED (
    SELECT id, available_at
    FROM pulljobs_job
    WHERE id = %(run_id)s::bigint
),
step AS (
    INSERT INTO pulljobs_step (run_id, name, number, position, kind, function, started_at, due_at, children)
    SELECT
        id, %(name)s::text, %(number)s::int, %(position)s::int, %(kind)s::text, %(function)s::text, clock_timestamp(),
        CASE WHEN %(is_bounded)s::boolean THEN available_at END, %(children)s::bigint[]
    FROM job
    ON CONFLICT (run_id, name, number) DO NOTHING
),
run AS (
    UPDATE pulljobs_run
    SET waiting_for = %(waiting_for)s::text, waiting_batch = %(waiting_batch)s::bigint, waiting_consumer = NULL
    WHERE id = %(run_id)s::bigint
)
UPDATE pulljobs_job
SET available_at = clock_timestamp()
WHERE id = %(run_id)s::bigint
    AND available_at > clock_timestamp()
    AND (
        EXISTS (
            SELECT
            FROM pulljobs_signal
            WHERE run_id = %(run_id)s::bigint AND name = %(waiting_for)s::text AND consumed_at IS NULL
        )
        OR EXISTS (
            SELECT
            FROM pulljobs_batch
            WHERE id = %(waiting_batch)s::bigint AND completed_at IS NOT NULL
        )
    )
RETURNING consumer_id
