-- Find the messages of which a job is queued or in flight.
-- Event: none; schedules with overlap=skip skip slots while their previous message has such a job.
-- Parameters: message_ids bigint[].
-- Returns: message_id of those with such a job.
-- Locks: none. Index: job fan-out (message, consumer).
SELECT message_id
FROM unnest(%(message_ids)s::bigint[]) AS previous (message_id)
WHERE EXISTS (
    SELECT
    FROM pulljobs_job AS job
    WHERE job.message_id = previous.message_id AND reason IS NULL
)
