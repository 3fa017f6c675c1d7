-- Sample the rows of a run, to divide them among tasks.
-- Events: none, it reads.
-- Parameters: low_xid, high_xid bigint, the second exclusive; archive_percent, message_percent double precision, of the blocks.
-- Returns: archive_ids, message_ids bigint[], in order.
-- Locks: none. Index: none, it reads some blocks.
SELECT
    ARRAY(
        SELECT id
        FROM pulljobs_archived_job TABLESAMPLE SYSTEM (%(archive_percent)s::double precision)
        WHERE settled_xid >= %(low_xid)s::bigint AND settled_xid < %(high_xid)s::bigint
        ORDER BY id
    ) AS archive_ids,
    ARRAY(
        SELECT id
        FROM pulljobs_message TABLESAMPLE SYSTEM (%(message_percent)s::double precision)
        WHERE published_xid >= %(low_xid)s::bigint AND published_xid < %(high_xid)s::bigint
        ORDER BY id
    ) AS message_ids
