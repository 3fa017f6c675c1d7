INSERT INTO raw_array_job (id, message_id, consumer_id, available_at, retry_count, deliveries, priority)
SELECT id, message_id, consumer_id, available_at, 0, 0, priority
FROM queued
ORDER BY id
