-- Delete the sums of batches that were deleted because of their age: nothing counts them.
-- Event: none.
-- Parameters: batch_ids bigint[].
-- Returns: nothing.
-- Locks: the sums. Index: primary keys.
DELETE FROM pulljobs_batch_sum AS sum
WHERE batch_id = ANY(%(batch_ids)s::bigint[])
    AND (SELECT id FROM pulljobs_batch WHERE id = sum.batch_id) IS NULL  -- one by one
