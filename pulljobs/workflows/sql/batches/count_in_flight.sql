-- Count the members of a batch that are in flight, by the leases that hold jobs.
-- Event: none.
-- Parameters: batch_id bigint, cap int: no more jobs of leases are read.
-- Returns one row: jobs.
-- Locks: none. Index: primary key; the table of leases is small.
SELECT count(*) AS jobs
FROM (
    SELECT lease.lease_token, member.id
    FROM pulljobs_lease AS lease
    CROSS JOIN LATERAL unnest(lease.job_ids) AS member (id)
    LIMIT %(cap)s::int
) AS held
CROSS JOIN LATERAL (
    -- One by one: a join might scan the table.
    SELECT
    FROM pulljobs_job
    WHERE id = held.id AND lease_token = held.lease_token AND batch_id = %(batch_id)s::bigint
    LIMIT 1
) AS job
