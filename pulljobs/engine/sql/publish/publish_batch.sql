-- Publish messages that have only content, headers and priority. This is the fast path of publish.sql: it takes three quarters of
-- the time, and its result is read in a tenth.
-- Event: publish. In the caller's transaction.
-- Parameters: channel text, producer_id bigint, and arrays of one length, in the order of the messages: payloads bytea[],
--   content_types text[], headers jsonb[] (NULL: none), priorities smallint[].
-- Returns one row: message_ids bigint[] in order; consumer_ids bigint[], those of the channel in order of the id; job_ids bigint[],
--   for each message one of each of these (both NULL: the channel has no consumer). No row: no such channel.
-- Locks: none. Index: channel name, consumer place.
WITH transaction AS MATERIALIZED (
    -- The clock is read after the transaction has its id: claims rely on that order (low_water_marks.py).
    SELECT pg_current_xact_id() AS xid
),
channel AS MATERIALIZED (
    SELECT id, clock_timestamp() AS now
    FROM pulljobs_channel, transaction
    WHERE name = %(channel)s::text AND xid IS NOT NULL
),
consumer AS MATERIALIZED (
    SELECT consumer.id
    FROM channel
    JOIN pulljobs_consumer AS consumer ON consumer.channel_id = channel.id
    WHERE consumer.deleted_at IS NULL
    ORDER BY consumer.id
),
offered AS MATERIALIZED (
    SELECT
        row.*,
        channel.id AS channel_id,
        channel.now,
        ${new_id} AS id
    FROM channel, unnest(
        %(payloads)s::bytea[],
        %(content_types)s::text[],
        %(headers)s::jsonb[],
        %(priorities)s::smallint[]
    ) WITH ORDINALITY AS row (payload, content_type, headers, priority, ordinal)
),
message AS (
    INSERT INTO pulljobs_message (
        id, channel_id, producer_id, published_at, priority, content_type, headers, payload
    )
    SELECT id, channel_id, %(producer_id)s::bigint, now, priority, content_type, coalesce(headers, '{}'), payload
    FROM offered
),
job AS (
    INSERT INTO pulljobs_job (
        consumer_id, message_id, available_at, priority, state, retry_count, deliveries
    )
    SELECT
        consumer.id,
        offered.id,
        now,
        priority,
        'QUEUED',
        0,
        0
    FROM offered
    CROSS JOIN consumer
    ORDER BY offered.ordinal, consumer.id
    RETURNING id
)
SELECT
    (SELECT array_agg(id) FROM offered) AS message_ids,
    (SELECT array_agg(id) FROM consumer) AS consumer_ids,
    (SELECT array_agg(id) FROM job) AS job_ids
FROM channel
