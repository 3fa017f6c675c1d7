-- Read the time of the oldest settlement that is not in the lake, among those below an id.
-- Events: none, it reads.
-- Parameters: high_xid bigint, the end of the last window that is done; 0: none; high_id bigint,
--   exclusive.
-- Returns: settled_at timestamptz; NULL: the lake has all.
-- Locks: none. Index: settled_xid (ranges of blocks); the primary key, if the lake has none.
SELECT
    CASE
        WHEN %(high_xid)s::bigint = 0 THEN (SELECT settled_at FROM pulljobs_archived_job ORDER BY id LIMIT 1)
        -- Of all of them: transactions with later numbers may have settled earlier.
        ELSE (
            SELECT min(settled_at)
            FROM pulljobs_archived_job
            WHERE settled_xid >= %(high_xid)s::bigint
                AND settled_xid < pg_snapshot_xmax(pg_current_snapshot())::text::bigint
                AND id < %(high_id)s::bigint
        )
    END AS settled_at
