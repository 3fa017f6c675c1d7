-- Read the owner of a stream, and how long it stays the owner without a heartbeat.
-- Event: none.
-- Parameters: stream text.
-- Returns: stream_id, consumer_id, owner uuid, name text of its process (NULL: unknown), seconds float8 (to the end of its
--   patience; NULL: it has no owner), now timestamptz; no row: no such stream.
-- Locks: none. Index: stream name.
SELECT
    stream.id AS stream_id,
    stream.consumer_id,
    stream.owner,
    node.name,
    extract(epoch FROM stream.owned_until - clock_timestamp())::float8 AS seconds,
    clock_timestamp() AS now
FROM pulljobs_stream AS stream
LEFT JOIN pulljobs_node AS node ON node.id = stream.owner
WHERE stream.name = %(stream)s::text
