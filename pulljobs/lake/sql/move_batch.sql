-- Put a batch of a stream under another lease, or mark it as released.
-- Event: none; in the transaction of reclaim.sql or finish.sql.
-- Parameters: batch_id bigint, lease_token uuid (NULL: unchanged), state text.
-- Returns: nothing.
-- Locks: the batch. Index: primary key.
UPDATE pulljobs_stream_batch
SET lease_token = coalesce(%(lease_token)s::uuid, lease_token), state = %(state)s::text
WHERE id = %(batch_id)s::bigint
