-- Put a batch of a stream under another lease, or note that it is given back.
-- Event: none; in the transaction of reclaim.sql or finish.sql.
-- Parameters: batch_id bigint, token uuid (NULL: it keeps the one it had), state text.
-- Returns: nothing.
-- Locks: the batch. Index: primary key.
UPDATE pulljobs_stream_batch
SET token = coalesce(%(token)s::uuid, token), state = %(state)s::text
WHERE id = %(batch_id)s::bigint
