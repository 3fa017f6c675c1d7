-- Compare the counts of a batch with its members, in one snapshot.
-- Event: none.
-- Parameters: batch_id bigint.
-- Returns: members, delivered, dead, live as counted; and as they are: published (job ids and nested batches), live_jobs (and nested
--   batches that go on), dead_jobs; is_complete, is_reopened (a redrive is not decided yet). No row: there is no such batch.
-- Locks: none. Index: primary keys, pulljobs_job_batch, pulljobs_batch_parent.
WITH batch AS MATERIALIZED (
    SELECT
        batch.id,
        batch.members + coalesce(rest.members, 0) AS members,
        batch.delivered + coalesce(rest.delivered, 0) AS delivered,
        batch.dead + coalesce(rest.dead, 0) AS dead,
        batch.completed_at IS NOT NULL AS is_complete,
        batch.redriven + coalesce(rest.redriven, 0) > batch.redriven_before AS is_reopened
    FROM pulljobs_batch AS batch
    CROSS JOIN LATERAL (
        SELECT sum(members) AS members, sum(delivered) AS delivered, sum(dead) AS dead, sum(redriven) AS redriven
        FROM pulljobs_batch_sum
        WHERE batch_id = batch.id
    ) AS rest
    WHERE batch.id = %(batch_id)s::bigint
),
member AS MATERIALIZED (
    SELECT unnest(job_ids) AS id
    FROM pulljobs_batch_part
    WHERE batch_id = (SELECT id FROM batch)
),
nested AS MATERIALIZED (
    SELECT completed_at IS NULL AS is_live
    FROM pulljobs_batch
    WHERE parent_id = (SELECT id FROM batch)
)
SELECT
    members,
    delivered,
    dead,
    members - delivered - dead AS live,
    (SELECT count(*) FROM member) + (SELECT count(*) FROM nested) AS published,
    (
        SELECT count(*)
        FROM member
        CROSS JOIN LATERAL (
            -- One by one: a join might scan the table.
            SELECT
            FROM pulljobs_job
            WHERE id = member.id AND reason IS NULL
            LIMIT 1
        ) AS job
    ) + (SELECT count(*) FROM nested WHERE is_live) AS live_jobs,
    (SELECT count(*) FROM pulljobs_job WHERE batch_id = batch.id AND reason IS NOT NULL) AS dead_jobs,
    is_complete,
    is_reopened
FROM batch
