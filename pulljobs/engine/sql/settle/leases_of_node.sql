-- Lock the leases that a lost node still holds, and their jobs that no other transaction has locked.
-- Event: none; giving back is finish.sql, in the same transaction.
-- Parameters: node_id uuid.
-- Returns: lease_id, lease_token, job_ids (locked here; all of them are held still), running_ids (of a worker or of push delivery, those known to run; NULL:
--   of another holder), via, is_whole (false: others of its jobs are locked elsewhere).
-- Locks: the lease rows and the jobs, skipping those of other transactions. Index: job primary key; none on the node, for there are as
--   many leases as claims in flight.
WITH reached AS MATERIALIZED (
    SELECT *
    FROM pulljobs_lease
    WHERE node_id = %(node_id)s::uuid
    ORDER BY id
    FOR UPDATE SKIP LOCKED
),
${jobs_of_reached_leases}
