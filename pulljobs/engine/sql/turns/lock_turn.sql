-- Lock the key of a job that is asked for by its id, if claims of the consumer go by key.
-- Event: none; a statement before turn_of_job.sql and take.sql, which then see what was claimed before the lock.
-- Parameters: consumer_id bigint, job_id bigint.
-- Returns: key, cost int (tokens of the job); no row: claims of the consumer do not go by key, or it has no such job.
-- Locks: the key's row, which is made if it is missing; waiting for claims. Index: consumer, job and message primary key, flow key.
INSERT INTO pulljobs_flow_key AS row (consumer_id, key)
SELECT job.consumer_id, coalesce(job.turn_key, message.key, '')
FROM pulljobs_consumer AS consumer
JOIN pulljobs_job AS job ON job.consumer_id = consumer.id
LEFT JOIN LATERAL (
    SELECT key
    FROM pulljobs_message
    WHERE id = job.message_id AND job.turn_key IS NULL
    LIMIT 1
) AS message ON true
WHERE consumer.id = %(consumer_id)s::bigint
    AND consumer.takes_turns
    AND job.id = %(job_id)s::bigint
    AND job.consumer_id = %(consumer_id)s::bigint
ON CONFLICT (consumer_id, key) DO UPDATE
SET writer = pg_current_xact_id()
RETURNING row.key, (SELECT coalesce(cost, 1) FROM pulljobs_job WHERE id = %(job_id)s::bigint) AS cost
