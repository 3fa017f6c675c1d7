-- Publish messages to all consumers of a known channel, with the rows that pulljobs writes.
WITH message AS (
    INSERT INTO pulljobs_message (channel_id, published_at, priority, content_type, headers, payload)
    SELECT %(channel_id)s::bigint, clock_timestamp(), 0, 'application/json', '{}', payload
    FROM unnest(%(payloads)s::bytea[]) AS payload
    RETURNING id, channel_id, published_at
)
INSERT INTO pulljobs_job (consumer_id, message_id, available_at, priority, state, retry_count, deliveries)
SELECT consumer.id, message.id, published_at, 0, 'QUEUED', 0, 0
FROM message
JOIN pulljobs_consumer AS consumer USING (channel_id)
WHERE deleted_at IS NULL
