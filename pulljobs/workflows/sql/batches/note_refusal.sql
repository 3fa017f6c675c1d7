-- Record why a callback was refused, and note that a process has to look at the batch again.
-- Event: none; after the decision was rolled back, under the lock of lock_batch.sql.
-- Parameters: batch_id bigint, error text.
-- Returns: nothing.
-- Locks: held already. Index: primary key.
WITH noted AS (
    INSERT INTO pulljobs_batch_sum (batch_id)
    VALUES (%(batch_id)s::bigint)
)
UPDATE pulljobs_batch
SET error = %(error)s::text
WHERE id = %(batch_id)s::bigint
