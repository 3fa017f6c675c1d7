-- Forget steps of a run from a position on, and give back the signals that their waits consumed, or delete these signals.
-- Event: none; before a redrive, the job is locked by lock_runs.sql in this transaction.
-- Parameters: run_id bigint, position int, discards_signals boolean (true: delete them).
-- Returns: batch_id of each forgotten step (NULL: no children).
-- Locks: none but the job's. Index: step and signal primary key, signal pulljobs_signal_run.
WITH forgotten AS (
    DELETE FROM pulljobs_step
    WHERE run_id = %(run_id)s::bigint AND position >= %(position)s::int
    RETURNING name, number, kind, batch_id
),
consumed AS MATERIALIZED (
    SELECT signal.id
    FROM forgotten
    JOIN pulljobs_signal AS signal
        ON signal.run_id = %(run_id)s::bigint AND signal.name = forgotten.name AND signal.consumed_by = forgotten.number
    WHERE forgotten.kind = 'wait'
),
discarded AS (
    DELETE FROM pulljobs_signal
    WHERE %(discards_signals)s::boolean AND id IN (SELECT id FROM consumed)
),
returned AS (
    UPDATE pulljobs_signal
    SET consumed_at = NULL, consumed_by = NULL
    WHERE NOT %(discards_signals)s::boolean AND id IN (SELECT id FROM consumed)
),
run AS (
    UPDATE pulljobs_run
    SET waiting_for = NULL, waiting_batch = NULL
    WHERE id = %(run_id)s::bigint
)
SELECT batch_id
FROM forgotten
