-- Read the messages of claimed jobs.
-- Event: none.
-- Parameters: ids bigint[], and their bounds lowest, highest bigint, so that only those days' partitions are read.
-- Returns: id, payload, content_type, headers (NULL: none), published_seconds float8 (since 1970), client_message_id, key;
--   in no order.
-- Locks: none. Index: the primary key of each partition.
SELECT
    id,
    payload,
    content_type,
    nullif(headers, '{}') AS headers,
    date_part('epoch', published_at) AS published_seconds,
    client_message_id,
    key
FROM pulljobs_message
WHERE id = ANY(%(ids)s::bigint[])
    AND id >= %(lowest)s::bigint
    AND id <= %(highest)s::bigint
