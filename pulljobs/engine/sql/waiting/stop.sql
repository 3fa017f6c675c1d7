-- Mark a process as stopped, and delete its waiters. Rows that are locked stay as they are.
-- Event: none.
-- Parameters: node_id uuid.
-- Returns: id; no row: another transaction has the row of the process locked, or there is none.
-- Locks: the node and its waiters, skipping those that are locked. Index: primary keys, waiter primary key.
WITH deleted AS (
    DELETE FROM pulljobs_pull_waiter
    WHERE (consumer_id, node_id) IN (
        SELECT consumer_id, node_id
        FROM pulljobs_pull_waiter
        WHERE node_id = %(node_id)s::uuid
        FOR UPDATE SKIP LOCKED
    )
)
UPDATE pulljobs_node
SET stopped_at = clock_timestamp()
WHERE id = (
    SELECT id
    FROM pulljobs_node
    WHERE id = %(node_id)s::uuid
    FOR NO KEY UPDATE SKIP LOCKED
)
RETURNING id
