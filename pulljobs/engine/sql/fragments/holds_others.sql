-- Condition: the lease `held` still holds a job that the statement does not settle.
-- Index: primary key of the jobs.
EXISTS (
    -- The last job of a claim is mostly one of those that are left: then this query is enough.
    SELECT
    FROM pulljobs_job
    WHERE id = held.job_ids[cardinality(held.job_ids)]
        AND lease_token = held.lease_token
        AND id NOT IN (SELECT unnest(ARRAY(SELECT id FROM settled)))  -- only in finish, finish_members
        AND id NOT IN (SELECT unnest(ARRAY(SELECT id FROM delivered)))  -- not in finish, finish_members
    OFFSET 0
)
OR EXISTS (
    SELECT
    FROM unnest(held.job_ids) AS member (id)
    CROSS JOIN LATERAL (
        -- One by one: a join might scan the table.
        SELECT
        FROM pulljobs_job
        WHERE id = member.id AND lease_token = held.lease_token
        LIMIT 1
    ) AS job
    WHERE member.id NOT IN (SELECT unnest(ARRAY(SELECT id FROM settled)))  -- only in finish, finish_members
    WHERE member.id NOT IN (SELECT unnest(ARRAY(SELECT id FROM delivered)))  -- not in finish, finish_members
)
