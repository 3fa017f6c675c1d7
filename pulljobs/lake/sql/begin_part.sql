-- Begin a task of a chunked publish, or continue after what it committed. Another run of the task is waited for.
-- Event: none; in the transaction that publishes its rows.
-- Parameters: publish_id bigint, partition int.
-- Returns: checksum, rows, messages, jobs, duplicates, key_full, rejected: the counts that are committed.
-- Locks: the part's row. Index: primary key.
INSERT INTO pulljobs_published_part AS part (
    publish_id, partition, checksum, rows, messages, jobs, duplicates, key_full, rejected, published_at
)
VALUES (%(publish_id)s::bigint, %(partition)s::int, 0, 0, 0, 0, 0, 0, 0, clock_timestamp())
ON CONFLICT (publish_id, partition) DO UPDATE
SET published_at = part.published_at
RETURNING checksum, rows, messages, jobs, duplicates, key_full, rejected
