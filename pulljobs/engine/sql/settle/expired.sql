-- Lock leases that are over, for the reaper to give back what they hold.
-- Event: none; the expire itself is finish.sql, in the same transaction.
-- Parameters: leases int, at the most.
-- Returns: lease_id, lease_token, job_ids (those that are held still), running_ids (of a node, those known to run; NULL: no node's), via.
-- Locks: the lease rows, skipping those of other reapers. Index: lease leased_until, job primary key.
SELECT
    id AS lease_id,
    lease_token,
    ARRAY(
        SELECT member.id
        FROM unnest(job_ids) AS member (id)
        CROSS JOIN LATERAL (
            -- One by one: a join might scan the table.
            SELECT
            FROM pulljobs_job
            WHERE id = member.id AND lease_token = pulljobs_lease.lease_token
            LIMIT 1
        ) AS job
    ) AS job_ids,
    CASE WHEN node_id IS NOT NULL AND via IN ('worker', 'push') THEN coalesce(running_ids, '{}') END AS running_ids,
    via
FROM pulljobs_lease
WHERE leased_until < (SELECT clock_timestamp())
ORDER BY leased_until
LIMIT %(leases)s::int
FOR UPDATE SKIP LOCKED
