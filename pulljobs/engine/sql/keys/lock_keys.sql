-- Lock keys of exclusive consumers whose jobs ended or left them.
-- Event: none; a statement before free_keys.sql, which then sees what was blocked before the lock.
-- Parameters: consumer_ids bigint[], keys text[], of one length.
-- Returns: consumer_id, key of those that are known.
-- Locks: the key rows, in order, waiting for claims to end. Index: exclusive key.
SELECT row.consumer_id, row.key
FROM (
    SELECT DISTINCT consumer_id, key
    FROM unnest(%(consumer_ids)s::bigint[], %(keys)s::text[]) AS row (consumer_id, key)
    ORDER BY consumer_id, key
) AS asked
CROSS JOIN LATERAL (
    SELECT consumer_id, key
    FROM pulljobs_exclusive_key
    WHERE consumer_id = asked.consumer_id AND key = asked.key
    FOR UPDATE
) AS row
