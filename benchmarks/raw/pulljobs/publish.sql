-- Insert a message and a job for each payload into the tables of pulljobs, with all their indexes and constraints. The channel and its one consumer are known.
WITH message AS (
    INSERT INTO pulljobs_message (channel_id, published_at, priority, content_type, headers, payload)
    SELECT %(channel_id)s::bigint, clock_timestamp(), 0, 'application/json', '{}', payload
    FROM unnest(%(payloads)s::bytea[]) AS payload
    RETURNING id, published_at
)
INSERT INTO pulljobs_job (consumer_id, message_id, available_at, priority, state, retry_count, deliveries)
SELECT %(consumer_id)s::bigint, id, published_at, 0, 'QUEUED', 0, 0
FROM message
