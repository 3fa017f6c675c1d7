-- Lock the rows of keys in which jobs held slots.
-- Event: none; a statement before free_turns.sql, which then sees what was claimed before the lock.
-- Parameters: consumer_ids bigint[], keys text[], of one length.
-- Returns: consumer_id, key of those that are known.
-- Locks: the rows, in order, waiting for claims to end. Index: flow key.
SELECT row.consumer_id, row.key
FROM (
    SELECT DISTINCT consumer_id, key
    FROM unnest(%(consumer_ids)s::bigint[], %(keys)s::text[]) AS row (consumer_id, key)
    ORDER BY consumer_id, key
) AS asked
CROSS JOIN LATERAL (
    SELECT consumer_id, key
    FROM pulljobs_flow_key
    WHERE consumer_id = asked.consumer_id AND key = asked.key
    FOR NO KEY UPDATE
) AS row
