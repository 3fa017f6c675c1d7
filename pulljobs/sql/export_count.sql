-- How many rows a window of transactions holds: what the tasks of a run must have written in all.
-- Events: none, it reads.
-- Parameters: low_xid, high_xid bigint, the second left out.
-- Returns: archive, messages bigint.
-- Locks: none. Index: settled_xid; published_xid (ranges of blocks).
SELECT
    (
        SELECT count(*)
        FROM pulljobs_archived_job
        WHERE settled_xid >= (%(low_xid)s::text)::xid8 AND settled_xid < (%(high_xid)s::text)::xid8
    ) AS archive,
    (
        SELECT count(*)
        FROM pulljobs_message
        WHERE published_xid >= %(low_xid)s::bigint AND published_xid < %(high_xid)s::bigint
    ) AS messages
