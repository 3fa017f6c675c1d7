-- Find the messages of which a job is live: queued or in flight.
-- Event: none; schedules skip slots while a job of their previous message is live.
-- Parameters: message_ids bigint[].
-- Returns: message_id of those with a live job.
-- Locks: none. Index: job fan-out (message, consumer).
SELECT message_id
FROM unnest(%(message_ids)s::bigint[]) AS previous (message_id)
WHERE EXISTS (
    SELECT
    FROM pulljobs_job AS job
    WHERE job.message_id = previous.message_id AND reason IS NULL
)
