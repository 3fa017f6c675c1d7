-- Check that a process is the owner of a stream, whose row is not deleted until the transaction ends.
-- Event: none; before what only the owner may do.
-- Parameters: stream_id bigint, node_id uuid.
-- Returns: one row; none: another owner took it over.
-- Locks: the stream's key, which stops neither heartbeats nor another owner. Index: primary key.
SELECT id
FROM pulljobs_stream
WHERE id = %(stream_id)s::bigint AND owner = %(node_id)s::uuid
FOR KEY SHARE
