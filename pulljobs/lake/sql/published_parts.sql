-- Read the parts of a chunked publish that are committed.
-- Event: none.
-- Parameters: publish_id bigint.
-- Returns: partition, checksum, rows, messages, jobs, duplicates, key_full, rejected.
-- Locks: none. Index: primary key.
SELECT partition, checksum, rows, messages, jobs, duplicates, key_full, rejected
FROM pulljobs_published_part
WHERE publish_id = %(publish_id)s::bigint
ORDER BY partition
