-- Drop leases whose jobs were all given back.
-- Event: none; in the transaction that locked them.
-- Parameters: lease_ids bigint[].
-- Returns: nothing.
-- Locks: held already. Index: primary key.
DELETE FROM pulljobs_lease
WHERE id = ANY(%(lease_ids)s::bigint[])
