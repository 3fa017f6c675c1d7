-- Let the reaper come back in a second for leases with jobs that other transactions have locked.
-- Event: none; in the transaction that locked the leases.
-- Parameters: lease_ids bigint[], running_ids bigint[] (those that are known to run; NULL: as they are noted).
-- Returns: nothing.
-- Locks: held already. Index: primary key.
UPDATE pulljobs_lease
SET
    leased_until = clock_timestamp() + interval '1 second',
    running_ids = coalesce(%(running_ids)s::bigint[], running_ids)
WHERE id = ANY(%(lease_ids)s::bigint[])
