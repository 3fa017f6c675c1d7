-- Read the counts of batches, with sums that are not merged yet, in one snapshot.
-- Event: none.
-- Parameters: batch_ids bigint[].
-- Returns: the counts, the other columns of the batch but callbacks and redriven_before, and now (the clock of the database).
-- Locks: none. Index: primary keys.
SELECT
    batch.id,
    (batch.members + coalesce(rest.members, 0))::bigint AS members,
    (batch.delivered + coalesce(rest.delivered, 0))::bigint AS delivered,
    (batch.dead + coalesce(rest.dead, 0))::bigint AS dead,
    (batch.redriven + coalesce(rest.redriven, 0))::bigint AS redriven,
    batch.name,
    batch.parent_id,
    batch.run_id,
    batch.round,
    batch.created_at,
    batch.closed_at,
    batch.cancelled_at,
    batch.completed_at,
    batch.error,
    clock_timestamp() AS now
FROM pulljobs_batch AS batch
CROSS JOIN LATERAL (
    SELECT sum(members) AS members, sum(delivered) AS delivered, sum(dead) AS dead, sum(redriven) AS redriven
    FROM pulljobs_batch_sum
    WHERE batch_id = batch.id
) AS rest
WHERE batch.id = ANY(%(batch_ids)s::bigint[])
ORDER BY batch.id
