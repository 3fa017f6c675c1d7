-- Record a heartbeat of a process. If its row is locked, nothing is written: loops must not wait for it.
-- Event: none.
-- Parameters: node_id uuid, report jsonb (NULL: keep it), address text (NULL: keep it).
-- Returns one row: locked boolean (another transaction has the row locked).
-- Locks: the node, skipping it if it is locked. Index: primary key.
WITH written AS (
    UPDATE pulljobs_node
    SET
        heartbeat_at = clock_timestamp(),
        report = coalesce(%(report)s::jsonb, report),
        address = coalesce(%(address)s::text, address)
    WHERE id = (
        SELECT id
        FROM pulljobs_node
        WHERE id = %(node_id)s::uuid
        FOR NO KEY UPDATE SKIP LOCKED
    )
    RETURNING id
)
SELECT NOT EXISTS (SELECT FROM written) AND EXISTS (SELECT FROM pulljobs_node WHERE id = %(node_id)s::uuid) AS locked
