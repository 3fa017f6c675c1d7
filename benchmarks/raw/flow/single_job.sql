-- Queue one job of a key, with the payload of any message.
INSERT INTO raw_flow_job (id, message_id, consumer_id, available_at, retry_count, deliveries, priority, state, key)
SELECT
    (date_part('epoch', clock_timestamp()) * 1000000)::bigint << 10, message_id, consumer_id, clock_timestamp(), 0, 0, 0, 0, %(key)s::text
FROM queued
LIMIT 1
RETURNING id
