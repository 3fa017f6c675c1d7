-- Compute a checksum of each message of a range of ids, to compare with the lake. It covers the payload's size only.
-- Events: none, it reads.
-- Parameters: low_id, high_id bigint, the second exclusive; high_xid bigint, the first transaction that is not in the lake.
-- Returns: id, checksum bigint (60 bits), exported boolean. `spark/checksums.py` computes it of a row of the lake.
-- Locks: none. Index: primary key.
SELECT
    id,
    ('x' || left(md5(concat_ws(
        '|',
        id,
        channel_id,
        coalesce(producer_id::text, ''),
        (extract(epoch FROM published_at) * 1000000)::bigint,
        priority,
        coalesce(md5(key), ''),
        coalesce(md5(client_message_id), ''),
        md5(content_type),
        md5(headers::text),
        octet_length(payload)
    )), 15))::bit(60)::bigint AS checksum,
    published_xid < %(high_xid)s::bigint AS exported
FROM pulljobs_message
WHERE id >= %(low_id)s::bigint AND id < %(high_id)s::bigint
