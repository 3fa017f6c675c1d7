-- Lock a batch against its decision, to add members.
-- Event: none; in the transaction that publishes the members.
-- Parameters: batch_id bigint.
-- Returns: state text: open, closed, completed or cancelled. No row: there is no such batch.
-- Locks: the batch, FOR KEY SHARE, which merges and other publishers do not wait for. Index: primary key.
SELECT
    CASE
        WHEN cancelled_at IS NOT NULL THEN 'cancelled'
        WHEN completed_at IS NOT NULL THEN 'completed'
        WHEN closed_at IS NOT NULL THEN 'closed'
        ELSE 'open'
    END AS state
FROM pulljobs_batch
WHERE id = %(batch_id)s::bigint
FOR KEY SHARE
