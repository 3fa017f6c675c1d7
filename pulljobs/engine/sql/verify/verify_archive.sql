-- Look for settlements that break an invariant, a page of them at a time, the newest first.
-- Event: none.
-- Parameters: after bigint (the last id of the page before), wanted int.
-- Returns one row: reached bigint (NULL: the end), looked_at int8, invariants text[] and ids bigint[] of one length: the jobs.
-- Locks: none. Index: primary key of each partition, archived job_id.
WITH page AS MATERIALIZED (
    SELECT id, job_id, state, reason, lease_token
    FROM pulljobs_archived_job
    WHERE id < %(after)s::bigint
    ORDER BY id DESC
    LIMIT %(wanted)s::int
),
broken (invariant, id) AS (
    SELECT 'settlement_is_legal', job_id
    FROM page
    WHERE state NOT IN ('DELIVERED', 'DEAD') OR (state = 'DEAD') <> (reason IS NOT NULL)
    UNION ALL
    SELECT 'claim_settles_once', job_id
    FROM page
    WHERE EXISTS (
        SELECT
        FROM pulljobs_archived_job
        WHERE job_id = page.job_id AND lease_token = page.lease_token AND id <> page.id
    )
    UNION ALL
    SELECT 'delivered_once', job_id
    FROM page
    WHERE state = 'DELIVERED'
        AND EXISTS (
            SELECT
            FROM pulljobs_archived_job
            WHERE job_id = page.job_id AND state = 'DELIVERED' AND id <> page.id
        )
)
SELECT
    (SELECT min(id) FROM page) AS reached,
    (SELECT count(*) FROM page) AS looked_at,
    ARRAY(SELECT invariant FROM broken ORDER BY id, invariant) AS invariants,
    ARRAY(SELECT id FROM broken ORDER BY id, invariant) AS ids
