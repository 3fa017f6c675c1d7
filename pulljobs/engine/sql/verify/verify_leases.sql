-- Look for leases that break an invariant, a page of them at a time.
-- Event: none.
-- Parameters: after bigint (the last id of the page before), wanted int, overdue interval (how long after its end a lease may
--   wait for a reaper).
-- Returns one row: reached bigint (NULL: the end), looked_at int8, invariants text[] and ids bigint[] of one length: leases.
-- Locks: none. Index: primary keys, archived job_id.
WITH page AS MATERIALIZED (
    SELECT *
    FROM pulljobs_lease
    WHERE id > %(after)s::bigint
    ORDER BY id
    LIMIT %(wanted)s::int
),
broken (invariant, id) AS (
    SELECT 'lease_ends', id
    FROM page
    -- The reaper puts off a lease that is over by a second at a time, beyond its hard end too (postpone_leases.sql).
    WHERE leased_until > greatest(hard_end, clock_timestamp() + interval '1 s') OR claimed_at > leased_until
    UNION ALL
    SELECT 'ended_lease_is_reaped', id
    FROM page
    WHERE leased_until < clock_timestamp() - %(overdue)s::interval
        -- A lease that was renewed while its last job was settled keeps its row, without jobs. OFFSET prevents a scan of all jobs.
        AND EXISTS (
            SELECT FROM pulljobs_job AS job
            WHERE job.id = ANY (page.job_ids) AND job.lease_token = page.lease_token
            OFFSET 0
        )
    UNION ALL
    SELECT DISTINCT 'leased_job_is_known', page.id
    FROM page
    CROSS JOIN unnest(page.job_ids) AS member (job_id)
    WHERE NOT EXISTS (SELECT FROM pulljobs_job WHERE id = member.job_id)
        AND NOT EXISTS (SELECT FROM pulljobs_archived_job WHERE job_id = member.job_id)
)
SELECT
    (SELECT max(id) FROM page) AS reached,
    (SELECT count(*) FROM page) AS looked_at,
    ARRAY(SELECT invariant FROM broken ORDER BY id, invariant) AS invariants,
    ARRAY(SELECT id FROM broken ORDER BY id, invariant) AS ids
