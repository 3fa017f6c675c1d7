-- Find the messages among these that a job still needs, for a delivery or for a redrive.
-- Events: none, it reads.
-- Parameters: message_ids bigint[].
-- Returns: message_id.
-- Locks: none. Index: pulljobs_job_fan_out.
SELECT DISTINCT message_id
FROM pulljobs_job
WHERE message_id = ANY(%(message_ids)s::bigint[])
ORDER BY message_id
