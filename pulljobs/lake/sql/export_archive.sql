-- Read the settlements of a window of transactions and of a range of ids for the lake.
-- Events: none, it reads.
-- Parameters: low_xid, high_xid, low_id, high_id bigint; of each pair the second is exclusive.
-- Returns: the columns of the lake's table `archive`, without names and day.
-- Locks: none. Index: settled_xid (ranges of blocks), or the primary key.
SELECT
    id,
    job_id,
    message_id,
    consumer_id,
    state::text AS state,
    reason::text AS reason,
    created_at,
    claimed_at,
    started_at,
    settled_at,
    run_seconds,
    retry_count,
    deliveries,
    node_id::text AS node_id,
    lease_token::text AS lease_token,
    error,
    result::text AS result,
    settled_xid
FROM pulljobs_archived_job
WHERE settled_xid >= %(low_xid)s::bigint
    AND settled_xid < %(high_xid)s::bigint
    AND id >= %(low_id)s::bigint
    AND id < %(high_id)s::bigint
