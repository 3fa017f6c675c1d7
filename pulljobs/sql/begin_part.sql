-- Begin a task of a chunked publish; whoever else has begun it is waited for.
-- Event: none; in the transaction that publishes its rows.
-- Parameters: publish_id bigint, partition int.
-- Returns: publish_id; no row: it is committed already.
-- Locks: the part's row. Index: primary key.
INSERT INTO pulljobs_published_part (
    publish_id, partition, checksum, rows, messages, jobs, duplicates, key_full, rejected, published_at
)
VALUES (%(publish_id)s::bigint, %(partition)s::int, 0, 0, 0, 0, 0, 0, 0, clock_timestamp())
ON CONFLICT (publish_id, partition) DO NOTHING
RETURNING publish_id
