-- Find batches that have sums, without reading all sums of a batch.
-- Event: none.
-- Parameters: after bigint (ids above it), wanted int.
-- Returns: batch_id in order, is_known (the batch exists).
-- Locks: none. Index: primary keys.
WITH RECURSIVE noted (batch_id, number) AS (
    SELECT min(batch_id), 1
    FROM pulljobs_batch_sum
    WHERE batch_id > %(after)s::bigint
    UNION ALL
    SELECT (SELECT min(batch_id) FROM pulljobs_batch_sum WHERE batch_id > noted.batch_id), noted.number + 1
    FROM noted
    WHERE noted.batch_id IS NOT NULL AND noted.number < %(wanted)s::int
)
SELECT batch_id, EXISTS (SELECT FROM pulljobs_batch WHERE id = noted.batch_id) AS is_known
FROM noted
WHERE batch_id IS NOT NULL
