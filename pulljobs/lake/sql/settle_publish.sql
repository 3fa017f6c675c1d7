-- End a bulk publish: done, with its result, or aborted.
-- Event: none; in the transaction that published, if it did.
-- Parameters: id bigint, state text, rows bigint, messages bigint, jobs bigint, duplicates bigint, key_full bigint, rejected bigint.
-- Returns: nothing.
-- Locks: the row. Index: primary key.
UPDATE pulljobs_bulk_publish
SET
    state = %(state)s::text,
    rows = %(rows)s::bigint,
    messages = %(messages)s::bigint,
    jobs = %(jobs)s::bigint,
    duplicates = %(duplicates)s::bigint,
    key_full = %(key_full)s::bigint,
    rejected = %(rejected)s::bigint,
    touched_at = clock_timestamp(),
    settled_at = clock_timestamp()
WHERE id = %(id)s::bigint AND state <> 'done'
