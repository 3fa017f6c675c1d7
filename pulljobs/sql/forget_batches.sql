-- Forget what a sink committed long ago: Spark repeats the last batch at the most.
-- Event: none; in the transaction that publishes a batch.
-- Parameters: query_id uuid, below bigint (batch ids).
-- Returns: nothing.
-- Locks: the rows. Index: sink.
DELETE FROM pulljobs_bulk_publish
WHERE query_id = %(query_id)s::uuid
    AND batch_id < %(below)s::bigint
    AND state = 'done'
    AND rejected = 0
