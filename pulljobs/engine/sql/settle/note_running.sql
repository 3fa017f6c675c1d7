-- Note which jobs of a node run, for a node that renews nothing because a handler does not let its other threads run.
-- Event: none.
-- Parameters: node_id uuid, running_ids bigint[].
-- Returns: nothing.
-- Locks: the lease rows, skipping those of other transactions. No index on the node: there are as many leases as claims in flight.
UPDATE pulljobs_lease
SET running_ids = %(running_ids)s::bigint[]
WHERE id = ANY(ARRAY(
    SELECT id
    FROM pulljobs_lease
    WHERE node_id = %(node_id)s::uuid AND job_ids && %(running_ids)s::bigint[]
    ORDER BY id
    FOR UPDATE SKIP LOCKED
))
