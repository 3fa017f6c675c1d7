-- Find how jobs were settled under given leases, to answer a repeated settle.
-- Event: none.
-- Parameters: job_ids bigint[], tokens uuid[], of one length.
-- Returns: job_id, state, reason.
-- Locks: none. Index: archive job_id, of every day that is kept.
SELECT archived.job_id, archived.state, archived.reason
FROM unnest(%(job_ids)s::bigint[], %(tokens)s::uuid[]) AS row (job_id, token)
JOIN pulljobs_archived_job AS archived
    ON archived.job_id = row.job_id AND archived.lease_token = row.token
-- The join would do. But of a day that was never analyzed the planner expects so much of it that it scans.
WHERE archived.job_id = ANY(%(job_ids)s::bigint[])
