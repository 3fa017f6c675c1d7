-- Find which of many consumers have jobs that wait, are due later or are in flight: claims for the others would find nothing.
-- Event: none; before the claims of a worker to which many consumers are due.
-- Parameters: consumer_ids bigint[].
-- Returns: consumer_id.
-- Locks: none. Index: pulljobs_job_claim.
SELECT asked.consumer_id
FROM unnest(%(consumer_ids)s::bigint[]) AS asked (consumer_id)
CROSS JOIN LATERAL (
    -- One by one: a join might read all jobs.
    SELECT
    FROM pulljobs_job
    WHERE consumer_id = asked.consumer_id AND available_at <= 'infinity'
    ORDER BY priority DESC, available_at, id
    LIMIT 1
) AS job
