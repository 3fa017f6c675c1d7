-- Lock what a node that is gone still holds.
-- Event: none; giving back is finish.sql, in the same transaction.
-- Parameters: node_id uuid.
-- Returns: lease_id, lease_token, job_ids (settled ones among them), running_ids (of a node, those known to run; NULL: no node's), via.
-- Locks: the lease rows, skipping those of a reaper. No index: there are as many leases as claims in flight.
SELECT
    id AS lease_id,
    lease_token,
    job_ids,
    CASE WHEN node_id IS NOT NULL AND via IN ('worker', 'push') THEN coalesce(running_ids, '{}') END AS running_ids,
    via
FROM pulljobs_lease
WHERE node_id = %(node_id)s::uuid
ORDER BY id
FOR UPDATE SKIP LOCKED
