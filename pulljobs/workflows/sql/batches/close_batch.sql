-- Close a batch, and note that a process has to look at it.
-- Event: none.
-- Parameters: batch_id bigint, is_cancelled boolean (it takes no members from now on).
-- Returns: id of the batch. No row: there is no such batch.
-- Locks: the batch. Index: primary key.
WITH closed AS (
    UPDATE pulljobs_batch
    SET
        closed_at = coalesce(closed_at, clock_timestamp()),
        cancelled_at = CASE
            WHEN %(is_cancelled)s::boolean AND completed_at IS NULL THEN coalesce(cancelled_at, clock_timestamp())
            ELSE cancelled_at
        END
    WHERE id = %(batch_id)s::bigint
    RETURNING id
),
noted AS (
    INSERT INTO pulljobs_batch_sum (batch_id)
    SELECT id
    FROM closed
)
SELECT id
FROM closed
