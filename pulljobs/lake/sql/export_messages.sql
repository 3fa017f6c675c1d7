-- Read the messages of a window of transactions and of a range of ids for the lake.
-- Events: none, it reads.
-- Parameters: low_xid, high_xid, low_id, high_id bigint, of each pair the second is exclusive; payload_cap bigint
--   (bytes; NULL: no payloads), channel_ids bigint[] (channels whose payloads are exported; NULL: all).
-- Returns: the columns of the lake's table `messages`, without names and day.
-- Locks: none. Index: published_xid (ranges of blocks), or the primary key.
SELECT
    id,
    channel_id,
    producer_id,
    published_at,
    priority::integer AS priority,
    key::text AS key,
    client_message_id::text AS client_message_id,
    content_type::text AS content_type,
    headers::text AS headers,
    octet_length(payload)::bigint AS payload_bytes,
    CASE WHEN taken THEN payload END AS payload,
    CASE WHEN taken THEN md5(payload) END AS payload_md5,
    published_xid
FROM pulljobs_message
CROSS JOIN LATERAL (
    SELECT octet_length(payload) <= %(payload_cap)s::bigint
        AND (%(channel_ids)s::bigint[] IS NULL OR channel_id = ANY(%(channel_ids)s::bigint[])) AS taken
) AS choice
WHERE published_xid >= %(low_xid)s::bigint
    AND published_xid < %(high_xid)s::bigint
    AND id >= %(low_id)s::bigint
    AND id < %(high_id)s::bigint
