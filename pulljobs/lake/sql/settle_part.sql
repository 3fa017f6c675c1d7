-- Record the result of a task of a chunked publish.
-- Event: none; in the transaction of begin_part.sql.
-- Parameters: publish_id bigint, partition int, checksum bigint, rows bigint, messages bigint, jobs bigint, duplicates bigint,
--   key_full bigint, rejected bigint.
-- Returns: nothing.
-- Locks: held already. Index: primary key.
UPDATE pulljobs_published_part
SET
    checksum = %(checksum)s::bigint,
    rows = %(rows)s::bigint,
    messages = %(messages)s::bigint,
    jobs = %(jobs)s::bigint,
    duplicates = %(duplicates)s::bigint,
    key_full = %(key_full)s::bigint,
    rejected = %(rejected)s::bigint,
    published_at = clock_timestamp()
WHERE publish_id = %(publish_id)s::bigint AND partition = %(partition)s::int
