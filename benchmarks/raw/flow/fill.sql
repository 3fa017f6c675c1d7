-- Queue a job for every message, with its key among this many keys; no keys: 0.
INSERT INTO raw_flow_job (id, message_id, consumer_id, available_at, retry_count, deliveries, priority, state, key)
SELECT
    id, message_id, consumer_id, available_at, 0, 0, priority, 0,
    CASE WHEN %(keys)s::int > 0 THEN 'key ' || (row_number() OVER (ORDER BY id) %% greatest(%(keys)s::int, 1)) END
FROM queued
ORDER BY id
