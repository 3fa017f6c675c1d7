-- Read the jobs of a slice of a batch that are still leased, with their messages.
-- Event: none.
-- Parameters: batch_id bigint, lease_token uuid, first int, last int (places, from 1).
-- Returns: job_id, lease_token, message_id, payload, content_type, headers (JSON text; NULL: none), key, priority,
--   client_message_id, published_at, retry_count, deliveries; in the order claimed.
-- Locks: none. Index: stream batch lease_token and job primary key, the primary key of partitions of messages.
WITH held AS MATERIALIZED (
    SELECT id, message_id, lease_token, available_at, priority, retry_count, deliveries
    FROM pulljobs_job
    WHERE id = ANY(ARRAY(
            SELECT unnest(job_ids[%(first)s::int:%(last)s::int])
            FROM pulljobs_stream_batch
            WHERE id = %(batch_id)s::bigint AND lease_token = %(lease_token)s::uuid AND state = 'open'
        ))
        AND lease_token = %(lease_token)s::uuid
        AND state = 'INFLIGHT'
)
SELECT
    held.id AS job_id,
    held.lease_token::text AS lease_token,
    message.id AS message_id,
    message.payload,
    message.content_type,
    nullif(message.headers, '{}')::text AS headers,
    message.key,
    held.priority::int AS priority,
    message.client_message_id,
    message.published_at,
    held.retry_count,
    held.deliveries
FROM held
-- Full: it finds what it joins in a hash; for an inner join a few rows are expected, and each is compared with each.
FULL JOIN (
    SELECT id, payload, content_type, headers, key, client_message_id, published_at
    FROM pulljobs_message
    WHERE id = ANY(ARRAY(SELECT message_id FROM held))
        AND id >= (SELECT min(message_id) FROM held)
        AND id <= (SELECT max(message_id) FROM held)
) AS message ON message.id = held.message_id
ORDER BY held.priority DESC, held.available_at, held.id
