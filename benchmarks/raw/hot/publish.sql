-- Insert a message and a job for each payload.
WITH message AS (
    INSERT INTO pulljobs_message (channel_id, published_at, priority, content_type, headers, payload)
    SELECT %(channel_id)s::bigint, clock_timestamp(), 0, 'application/json', '{}', payload
    FROM unnest(%(payloads)s::bytea[]) AS payload
    RETURNING id, published_at
)
INSERT INTO raw_hot (id, message_id, consumer_id, available_at, retry_count, deliveries, priority, state)
SELECT id, id, %(consumer_id)s::bigint, published_at, 0, 0, 0, 0
FROM message
