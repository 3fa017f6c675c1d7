-- Lock what a node that is gone still holds.
-- Event: none; giving back is finish.sql, in the same transaction.
-- Parameters: node_id uuid.
-- Returns: lease_id, token, job_ids (settled ones among them).
-- Locks: the lease rows, skipping those of a reaper. No index: there are as many leases as claims in flight.
SELECT id AS lease_id, token, job_ids
FROM pulljobs_lease
WHERE node_id = %(node_id)s::uuid
ORDER BY id
FOR UPDATE SKIP LOCKED
