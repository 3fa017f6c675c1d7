-- Forget steps of a run from a position on, and give back the signals that their waits consumed.
-- Event: none; before a redrive, the job is locked by lock_runs.sql in this transaction.
-- Parameters: run_id bigint, position int.
-- Returns: batch_id of each forgotten step (NULL: no children).
-- Locks: none but the job's. Index: step primary key, signal pulljobs_signal_run.
WITH forgotten AS (
    DELETE FROM pulljobs_step
    WHERE run_id = %(run_id)s::bigint AND position >= %(position)s::int
    RETURNING name, number, kind, batch_id
),
returned AS (
    UPDATE pulljobs_signal AS signal
    SET consumed_at = NULL, consumed_by = NULL
    FROM forgotten
    WHERE signal.run_id = %(run_id)s::bigint
        AND forgotten.kind = 'wait'
        AND signal.name = forgotten.name
        AND signal.consumed_by = forgotten.number
),
run AS (
    UPDATE pulljobs_run
    SET waiting_for = NULL, waiting_batch = NULL
    WHERE id = %(run_id)s::bigint
)
SELECT batch_id
FROM forgotten
