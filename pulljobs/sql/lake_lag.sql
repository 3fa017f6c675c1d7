-- How old the oldest settlement is that an export has yet to bring to the lake.
-- Events: none, it reads.
-- Parameters: high_xid bigint, the end of the last window that is done.
-- Returns: lag interval; no row: the lake has them all.
-- Locks: none. Index: settled_xid, of which one entry a partition is read.
SELECT clock_timestamp() - settled_at AS lag
FROM pulljobs_archived_job
WHERE settled_xid >= (%(high_xid)s::text)::xid8
ORDER BY settled_xid
LIMIT 1
