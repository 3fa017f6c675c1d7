-- Record that a process is working on a bulk publish.
-- Event: none.
-- Parameters: id bigint.
-- Returns: nothing.
-- Locks: the row. Index: primary key.
UPDATE pulljobs_bulk_publish
SET touched_at = clock_timestamp()
WHERE id = %(id)s::bigint
