INSERT INTO raw_hot (id, message_id, consumer_id, available_at, retry_count, deliveries, priority, state)
SELECT id, message_id, consumer_id, available_at, 0, 0, priority, 0
FROM queued
ORDER BY id
