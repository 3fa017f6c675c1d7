-- Read the messages of claimed jobs.
-- Event: none.
-- Parameters: ids bigint[], and their bounds lowest, highest bigint, so that only those days' partitions are read.
-- Returns: id, payload, content_type, given_headers (NULL: none), published bytea (the timestamptz in binary form), client_message_id, key;
--   in no order.
-- Locks: none. Index: the primary key of each partition.
SELECT
    id,
    payload,
    content_type,
    -- An empty JSON object has five bytes. A comparison of values would take a fifth of the statement's time.
    CASE WHEN pg_column_size(headers) > 8 THEN headers END AS given_headers,
    timestamptz_send(published_at) AS published,
    client_message_id,
    key
FROM pulljobs_message
WHERE id = ANY(%(ids)s::bigint[])
    AND id >= %(lowest)s::bigint
    AND id <= %(highest)s::bigint
