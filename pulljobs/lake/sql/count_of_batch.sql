-- Count the jobs of a batch that a handler settled one at a time, so that they do not count as lost.
-- Event: none; in the transaction of finish.sql, which settled them.
-- Parameters: lease_token uuid, acked int, failed int.
-- Returns: nothing.
-- Locks: the batch. Index: stream batch lease_token.
UPDATE pulljobs_stream_batch
SET acked = acked + %(acked)s::int, failed = failed + %(failed)s::int
WHERE lease_token = %(lease_token)s::uuid AND state = 'open'
