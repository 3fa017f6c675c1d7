-- Delete old batches of a sink: Spark repeats the last batch at most. A batch stays while rejected rows or replayed jobs refer
-- to it.
-- Event: none; in the transaction that publishes a batch.
-- Parameters: query_id uuid, below bigint (batch ids).
-- Returns: nothing.
-- Locks: the rows. Index: sink, publish of rejected rows and of replayed jobs.
DELETE FROM pulljobs_bulk_publish AS publish
WHERE query_id = %(query_id)s::uuid
    AND batch_id < %(below)s::bigint
    AND state = 'done'
    AND rejected = 0
    AND NOT EXISTS (SELECT FROM pulljobs_rejected_row WHERE publish_id = publish.id)
    AND NOT EXISTS (SELECT FROM pulljobs_replayed_job WHERE publish_id = publish.id)
