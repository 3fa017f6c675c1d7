-- Lock leases that are over, and their jobs that no other transaction has locked, for the reaper to give them back.
-- Event: none; the expire itself is finish.sql, in the same transaction.
-- Parameters: leases int (number at most).
-- Returns: lease_id, lease_token, job_ids (locked here; all of them are held still), running_ids (of a worker or of push delivery, those known to run; NULL:
--   of another holder), via, is_whole (false: others of its jobs are locked elsewhere).
-- Locks: the lease rows and the jobs, skipping those of other transactions. Index: lease leased_until, job primary key.
WITH reached AS MATERIALIZED (
    SELECT *
    FROM pulljobs_lease
    WHERE leased_until < (SELECT clock_timestamp())
    ORDER BY leased_until
    LIMIT %(leases)s::int
    FOR UPDATE SKIP LOCKED
),
${jobs_of_reached_leases}
