-- Find which jobs are held still, among those that a renewal did not reach.
-- Event: none.
-- Parameters: job_ids bigint[], lease_tokens uuid[], of one length.
-- Returns: job_id, lease_token of those that are held under a lease that may be renewed.
-- Locks: none. Index: job primary key, lease lease_token.
SELECT offered.job_id, offered.lease_token
FROM unnest(%(job_ids)s::bigint[], %(lease_tokens)s::uuid[]) AS offered (job_id, lease_token)
CROSS JOIN LATERAL (
    -- One by one: a join might scan the table.
    SELECT
    FROM pulljobs_job
    WHERE id = offered.job_id AND lease_token = offered.lease_token AND state = 'INFLIGHT'
    LIMIT 1
) AS job
CROSS JOIN LATERAL (
    SELECT
    FROM pulljobs_lease
    WHERE lease_token = offered.lease_token AND offered.job_id = ANY(job_ids) AND hard_end > clock_timestamp()
    LIMIT 1
) AS lease
