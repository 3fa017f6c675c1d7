-- Find the jobs still held of the claim under a request id, and note that the claim was returned again.
-- Event: none.
-- Parameters: consumer_id bigint, request_id text.
-- Returns: lease_token, leased_until, and of each job held, by priority and available_at, id, message_id, priority, retry_count,
--   deliveries, suspect; one row without a job (id NULL) where none is held any more; no row: there is no such claim.
-- Locks: its lease row; the note keeps the first caller from giving the claim back (forget_request.sql).
--   Index: lease request, lease lease_token, job primary key.
WITH request AS (
    UPDATE pulljobs_lease
    SET running_ids = coalesce(running_ids, '{}')
    WHERE consumer_id = %(consumer_id)s::bigint AND request_id = %(request_id)s::text
    RETURNING lease_token
)
SELECT
    lease.lease_token,
    min(lease.leased_until) OVER () AS leased_until,
    job.id,
    job.message_id,
    job.priority,
    job.retry_count,
    job.deliveries,
    job.suspect
FROM request
JOIN pulljobs_lease AS lease ON lease.lease_token = request.lease_token
LEFT JOIN LATERAL (
    SELECT held.*
    FROM unnest(lease.job_ids) AS member (job_id)
    CROSS JOIN LATERAL (
        -- One by one: a join might scan the table.
        SELECT *
        FROM pulljobs_job
        WHERE id = member.job_id AND lease_token = request.lease_token
        LIMIT 1
    ) AS held
) AS job ON true
ORDER BY job.priority DESC, job.available_at, job.id
