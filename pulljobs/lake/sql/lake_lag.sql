-- Compute the age of the oldest settlement that is not in the lake.
-- Events: none, it reads.
-- Parameters: high_xid bigint, the end of the last window that is done; 0: none.
-- Returns: lag interval; no row: the lake has all.
-- Locks: none. Index: settled_xid (ranges of blocks); the primary key, if the lake has none.
WITH RECURSIVE looked (low_xid, high_xid, settled_at) AS (
    SELECT
        %(high_xid)s::bigint,
        %(high_xid)s::bigint,
        (SELECT settled_at FROM pulljobs_archived_job WHERE %(high_xid)s::bigint = 0 ORDER BY id LIMIT 1)
    UNION ALL
    -- A few transactions, then twice as many, until one of them settled something: so the statement reads little that
    -- is already in the lake, and not all that is still to be exported.
    SELECT below.high_xid, above.high_xid, (
        SELECT min(settled_at)
        FROM pulljobs_archived_job
        WHERE settled_xid >= below.high_xid AND settled_xid < above.high_xid
    )
    FROM looked AS below
    CROSS JOIN LATERAL (
        SELECT below.high_xid + greatest(100, 2 * (below.high_xid - below.low_xid)) AS high_xid
    ) AS above
    WHERE settled_at IS NULL AND below.high_xid < pg_snapshot_xmax(pg_current_snapshot())::text::bigint
)
SELECT clock_timestamp() - settled_at AS lag
FROM looked
WHERE settled_at IS NOT NULL
