-- Lock the jobs of leases that have ended, and return them; the end of a query WITH reached (the leases, locked).
-- A job that another transaction has locked is left out, so that it delays no other job: is_whole is false then.
held AS MATERIALIZED (
    SELECT
        reached.*,
        ARRAY(
            SELECT member.id
            FROM unnest(reached.job_ids) AS member (id)
            CROSS JOIN LATERAL (
                -- One by one: a join might scan the table.
                SELECT
                FROM pulljobs_job
                WHERE id = member.id AND lease_token = reached.lease_token
                LIMIT 1
            ) AS job
        ) AS held_ids
    FROM reached
),
taken AS MATERIALIZED (
    SELECT
        held.*,
        ARRAY(
            SELECT job.id
            FROM unnest(held.held_ids) AS member (id)
            CROSS JOIN LATERAL (
                SELECT id
                FROM pulljobs_job
                WHERE id = member.id AND lease_token = held.lease_token
                FOR UPDATE SKIP LOCKED
            ) AS job
        ) AS taken_ids
    FROM held
)
SELECT
    id AS lease_id,
    lease_token,
    taken_ids AS job_ids,
    CASE WHEN node_id IS NOT NULL AND via IN ('worker', 'push') THEN coalesce(running_ids, '{}') END AS running_ids,
    via,
    taken_ids = held_ids AS is_whole
FROM taken
