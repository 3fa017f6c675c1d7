-- Compute a checksum of each settlement of a range of ids, to compare with the lake.
-- Events: none, it reads.
-- Parameters: low_id, high_id bigint, the second exclusive; high_xid bigint, the first transaction that is not in the lake.
-- Returns: id, checksum bigint (60 bits), exported boolean. `spark/checksums.py` computes it of a row of the lake.
-- Locks: none. Index: primary key.
SELECT
    id,
    ('x' || left(md5(concat_ws(
        '|',
        id,
        job_id,
        message_id,
        consumer_id,
        state,
        coalesce(reason, ''),
        (extract(epoch FROM created_at) * 1000000)::bigint,
        coalesce(((extract(epoch FROM claimed_at) * 1000000)::bigint)::text, ''),
        coalesce(((extract(epoch FROM started_at) * 1000000)::bigint)::text, ''),
        (extract(epoch FROM settled_at) * 1000000)::bigint,
        -- Nanoseconds: the servers of both sides write floating-point numbers differently.
        coalesce(floor(run_seconds * 1e9::float8)::bigint::text, ''),
        retry_count,
        deliveries,
        coalesce(node_id::text, ''),
        coalesce(lease_token::text, ''),
        coalesce(md5(error), ''),
        coalesce(md5(result::text), '')
    )), 15))::bit(60)::bigint AS checksum,
    settled_xid < %(high_xid)s::bigint AS exported
FROM pulljobs_archived_job
WHERE id >= %(low_id)s::bigint AND id < %(high_id)s::bigint
