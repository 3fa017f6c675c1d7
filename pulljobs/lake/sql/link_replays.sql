-- Record which jobs' messages were published again.
-- Event: none; in the transaction that publishes them.
-- Parameters: publish_id bigint, consumer_id bigint, and arrays of one length: message_ids bigint[], original_job_ids bigint[].
-- Returns: nothing.
-- Locks: none. Index: none.
INSERT INTO pulljobs_replayed_job (message_id, original_job_id, consumer_id, publish_id)
SELECT message_id, original_job_id, %(consumer_id)s::bigint, %(publish_id)s::bigint
FROM unnest(%(message_ids)s::bigint[], %(original_job_ids)s::bigint[]) AS replay (message_id, original_job_id)
WHERE message_id IS NOT NULL AND original_job_id IS NOT NULL
