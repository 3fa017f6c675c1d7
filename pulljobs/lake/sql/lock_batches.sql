-- Lock the batches of a stream that are not acked, and read their job ids.
-- Event: none; before they are acked, released or claimed again.
-- Parameters: stream_id bigint, after bigint, until bigint.
-- Returns: batch_id, seq, lease_token, job_ids; by seq.
-- Locks: the batches, waiting for them. Index: stream batch.
SELECT id AS batch_id, seq, lease_token, job_ids
FROM pulljobs_stream_batch
WHERE stream_id = %(stream_id)s::bigint
    AND seq > %(after)s::bigint
    AND seq <= %(until)s::bigint
    AND state <> 'acked'
ORDER BY seq
FOR UPDATE
