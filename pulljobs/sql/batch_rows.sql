-- Read jobs of a batch that are still held, with their messages: a slice of it, by places.
-- Event: none.
-- Parameters: batch_id bigint, token uuid, first int, last int (places, from 1).
-- Returns: job_id, lease, message_id, payload, content_type, headers (JSON text; NULL: none), key, priority, client_message_id,
--   published_at, retry_count, deliveries; in the order claimed.
-- Locks: none. Index: stream batch and job primary key, the primary key of each partition of messages.
SELECT
    job.id AS job_id,
    job.lease::text AS lease,
    message.id AS message_id,
    message.payload,
    message.content_type,
    nullif(message.headers, '{}')::text AS headers,
    message.key,
    job.priority::int AS priority,
    message.client_message_id,
    message.published_at,
    job.retry_count,
    job.deliveries
FROM pulljobs_stream_batch AS batch
CROSS JOIN LATERAL unnest(batch.job_ids[%(first)s::int:%(last)s::int]) WITH ORDINALITY AS member (job_id, place)
CROSS JOIN LATERAL (
    -- One by one: a join might scan the table.
    SELECT id, message_id, lease, priority, retry_count, deliveries
    FROM pulljobs_job
    WHERE id = member.job_id AND lease = batch.token AND state = 'INFLIGHT'
    LIMIT 1
) AS job
CROSS JOIN LATERAL (
    SELECT id, payload, content_type, headers, key, client_message_id, published_at
    FROM pulljobs_message
    WHERE id = job.message_id
    LIMIT 1
) AS message
WHERE batch.id = %(batch_id)s::bigint AND batch.token = %(token)s::uuid AND batch.state = 'open'
ORDER BY member.place
