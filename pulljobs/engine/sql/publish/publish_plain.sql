-- Publish one message that has only content, headers and priority. This is the fast path of publish_one.sql: it takes two thirds
-- of the time.
-- Event: publish. In the caller's transaction.
-- Parameters: channel text, producer_id bigint, payload bytea, content_type text, headers jsonb, priority smallint.
-- Returns, in no order, a row a consumer: message_id, job_id, consumer_id, awaited (a process waits for it); of a channel without consumers
--   one with the message_id alone. No row: no such channel.
-- Locks: none. Index: channel name, consumer place.
WITH message AS (
    INSERT INTO pulljobs_message (
        channel_id, producer_id, published_at, priority, content_type, headers, payload
    )
    SELECT
        id, %(producer_id)s::bigint, clock_timestamp(), %(priority)s::smallint, %(content_type)s::text,
        %(headers)s::jsonb, %(payload)s::bytea
    FROM pulljobs_channel
    WHERE name = %(channel)s::text
    RETURNING id, channel_id
),
job AS (
    INSERT INTO pulljobs_job (
        consumer_id, message_id, available_at, priority, state, retry_count, deliveries
    )
    SELECT
        consumer.id,
        message.id,
        -- The clock is read after the transaction has its id, as the message has: claims rely on that order (low_water_marks.py).
        clock_timestamp(),
        %(priority)s::smallint,
        'QUEUED',
        0,
        0
    FROM message
    JOIN pulljobs_consumer AS consumer USING (channel_id)
    WHERE deleted_at IS NULL
    RETURNING id, consumer_id
)
SELECT
    message.id AS message_id,
    job.id AS job_id,
    job.consumer_id,
    -- In the order of the primary key: EXISTS would take a bitmap, and twice the time.
    (
        SELECT consumer_id
        FROM pulljobs_pull_waiter
        WHERE consumer_id = job.consumer_id AND waiting_until > clock_timestamp()
        ORDER BY consumer_id, node_id
        LIMIT 1
    ) IS NOT NULL AS awaited
FROM message
LEFT JOIN job ON true
