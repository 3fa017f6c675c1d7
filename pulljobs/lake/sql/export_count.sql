-- Count the rows of a window of transactions: the tasks of a run must have written as many.
-- Events: none, it reads.
-- Parameters: low_xid, high_xid bigint, the second exclusive.
-- Returns: archive, messages bigint.
-- Locks: none. Index: settled_xid and published_xid (ranges of blocks).
SELECT
    (
        SELECT count(*)
        FROM pulljobs_archived_job
        WHERE settled_xid >= %(low_xid)s::bigint AND settled_xid < %(high_xid)s::bigint
    ) AS archive,
    (
        SELECT count(*)
        FROM pulljobs_message
        WHERE published_xid >= %(low_xid)s::bigint AND published_xid < %(high_xid)s::bigint
    ) AS messages
