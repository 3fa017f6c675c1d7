-- Begin another round of a batch if members were redriven after it was complete, and complete it if no member is live.
-- Event: none; after the merge, under the lock of lock_batch.sql.
-- Parameters: batch_id bigint.
-- Returns: was_complete (another round began), is_complete (it ended), and the batch's id, name,
--   parent_id, run_id, callbacks, round, members, delivered, dead. No row: nothing is to be decided.
-- Locks: held already. Index: primary key.
WITH batch AS MATERIALIZED (
    SELECT
        id,
        completed_at IS NOT NULL AS was_complete,
        closed_at IS NOT NULL AND members = delivered + dead AS is_complete
    FROM pulljobs_batch
    WHERE id = %(batch_id)s::bigint
        AND CASE
            WHEN completed_at IS NOT NULL THEN redriven > redriven_before
            ELSE closed_at IS NOT NULL AND members = delivered + dead
        END
)
UPDATE pulljobs_batch AS decided
SET
    round = decided.round + CASE WHEN batch.was_complete THEN 1 ELSE 0 END,
    redriven_before = decided.redriven,
    completed_at = CASE WHEN batch.is_complete THEN clock_timestamp() END,
    error = NULL
FROM batch
WHERE decided.id = batch.id
RETURNING
    batch.was_complete, batch.is_complete, decided.id, decided.name, decided.parent_id, decided.run_id, decided.callbacks,
    decided.round, decided.members, decided.delivered, decided.dead
