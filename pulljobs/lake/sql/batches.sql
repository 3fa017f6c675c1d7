-- Read the batches of a stream between two sequence numbers, without their jobs.
-- Event: none.
-- Parameters: stream_id bigint, after bigint, until bigint (NULL: the last).
-- Returns: batch_id, seq, state, lease_token, jobs, acked, failed, lost; by seq.
-- Locks: none. Index: stream batch.
SELECT id AS batch_id, seq, state, lease_token, jobs, acked, failed, lost
FROM pulljobs_stream_batch
WHERE stream_id = %(stream_id)s::bigint
    AND seq > %(after)s::bigint
    AND seq <= coalesce(%(until)s::bigint, seq)
ORDER BY seq
