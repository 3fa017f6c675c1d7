-- Look for a row for the lake in a window of transactions.
-- Events: none, it reads.
-- Parameters: low_xid, high_xid bigint, the second exclusive.
-- Returns: found boolean.
-- Locks: none. Index: settled_xid and published_xid (ranges of blocks).
SELECT
    EXISTS (
        SELECT
        FROM pulljobs_archived_job
        WHERE settled_xid >= %(low_xid)s::bigint AND settled_xid < %(high_xid)s::bigint
    )
    OR EXISTS (
        SELECT
        FROM pulljobs_message
        WHERE published_xid >= %(low_xid)s::bigint AND published_xid < %(high_xid)s::bigint
    ) AS found
