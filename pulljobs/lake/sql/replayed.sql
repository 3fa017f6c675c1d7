-- Find the jobs among these that were already replayed to a consumer.
-- Event: none.
-- Parameters: job_ids bigint[], consumer_id bigint (NULL: each job's own).
-- Returns: original_job_id, consumer_id.
-- Locks: none. Index: original job.
SELECT DISTINCT original_job_id, consumer_id
FROM pulljobs_replayed_job
WHERE original_job_id = ANY(%(job_ids)s::bigint[])
    AND (consumer_id = %(consumer_id)s::bigint) IS NOT FALSE
