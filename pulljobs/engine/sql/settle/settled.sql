-- Find how jobs were settled under given leases, to answer a repeated settle.
-- Event: none.
-- Parameters: job_ids bigint[], lease_tokens uuid[], of one length.
-- Returns: job_id, state, reason.
-- Locks: none. Index: archive job_id, of every day that is kept.
SELECT archived.job_id, archived.state, archived.reason
FROM unnest(%(job_ids)s::bigint[], %(lease_tokens)s::uuid[]) AS row (job_id, lease_token)
CROSS JOIN LATERAL (
    -- One by one: a join might scan days that were not analyzed yet.
    SELECT job_id, state, reason
    FROM pulljobs_archived_job
    WHERE job_id = row.job_id AND lease_token = row.lease_token
    LIMIT 1
) AS archived
