-- Lock a bulk publish, so that processes that commit or drop it take turns.
-- Event: none.
-- Parameters: id bigint.
-- Returns: state.
-- Locks: the row. Index: primary key.
SELECT state
FROM pulljobs_bulk_publish
WHERE id = %(id)s::bigint
FOR UPDATE
