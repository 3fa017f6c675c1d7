-- Delete a few batches that were complete longer than an age ago, with the ids of their members. A batch stays as long as the one that
--   contains it, which counts it as a member.
-- Event: none; upkeep.
-- Parameters: age interval, wanted int.
-- Returns: one row for each deleted batch.
-- Locks: the batches, SKIP LOCKED. Index: pulljobs_batch_ended, primary keys.
WITH old AS MATERIALIZED (
    SELECT id
    FROM pulljobs_batch AS batch
    WHERE completed_at < statement_timestamp() - %(age)s::interval
        AND (SELECT id FROM pulljobs_batch WHERE id = batch.parent_id) IS NULL  -- one by one
    ORDER BY completed_at
    LIMIT %(wanted)s::int
    FOR UPDATE SKIP LOCKED
),
parts AS (
    DELETE FROM pulljobs_batch_part
    WHERE batch_id = ANY(ARRAY(SELECT id FROM old))
)
DELETE FROM pulljobs_batch
WHERE id = ANY(ARRAY(SELECT id FROM old))
RETURNING id
