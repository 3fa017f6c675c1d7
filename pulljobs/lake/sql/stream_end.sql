-- Read the position of a stream: its last acked batch.
-- Event: none.
-- Parameters: stream text.
-- Returns one row: seq, 0 before the first.
-- Locks: none. Index: stream name, stream batch.
SELECT coalesce(max(batch.seq), 0) AS seq
FROM pulljobs_stream AS stream
JOIN pulljobs_stream_batch AS batch ON batch.stream_id = stream.id AND batch.state = 'acked'
WHERE stream.name = %(stream)s::text
