-- Publish messages on a channel: one job for each of its consumers, or for one of them only.
-- Event: publish. In the caller's transaction.
-- Parameters: channel text, producer_id bigint, dedupe_window interval, only_consumer_id bigint (NULL: each),
--   batch_id bigint (NULL: none), and arrays of one length:
--   payloads bytea[], content_types text[], headers jsonb[], keys text[], priorities smallint[],
--   client_message_ids text[], delays interval[], available_ats timestamptz[], costs int[] (NULL where not given).
-- Returns, in order: message_id, job_ids, consumer_ids, bounded; message_id NULL: a duplicate, or bounded: nothing was written,
--   for some have a key that must be looked at first (then publish_one.sql does all). No row: no such channel.
-- Locks: the publication rows of the client ids, in order of the id. Index: channel name, publication key.
WITH ${clock_after_id},
channel AS MATERIALIZED (
    SELECT
        id,
        coalesce(dedupe_window, %(dedupe_window)s::interval) AS dedupe_window,
        CASE
            WHEN array_remove(%(keys)s::text[], NULL) = '{}' THEN false
            ELSE EXISTS (
                SELECT
                FROM pulljobs_consumer
                WHERE channel_id = channel.id
                    AND max_queued_per_key > 0
                    AND deleted_at IS NULL
                    AND (id = %(only_consumer_id)s::bigint) IS NOT FALSE
            )
        END AS bounded
    FROM pulljobs_channel AS channel
    WHERE name = %(channel)s::text
),
offered AS MATERIALIZED (
    SELECT
        row.*,
        channel.id AS channel_id,
        channel.dedupe_window,
        channel.bounded,
        clock.now,
        ${new_id} AS id
    FROM channel, clock, unnest(
        %(payloads)s::bytea[],
        %(content_types)s::text[],
        %(headers)s::jsonb[],
        %(keys)s::text[],
        %(priorities)s::smallint[],
        %(client_message_ids)s::text[],
        %(delays)s::interval[],
        %(available_ats)s::timestamptz[],
        %(costs)s::int[]
    ) WITH ORDINALITY AS row (
        payload, content_type, headers, key, priority, client_message_id, delay, available_at, cost, ordinal
    )
),
taken AS (
    INSERT INTO pulljobs_publication AS publication (
        channel_id, client_message_id, message_id, published_at
    )
    SELECT DISTINCT ON (client_message_id) channel_id, client_message_id, id, now
    FROM offered
    WHERE client_message_id IS NOT NULL AND NOT bounded
    ORDER BY client_message_id, ordinal
    ON CONFLICT (channel_id, client_message_id) DO UPDATE
    SET message_id = excluded.message_id, published_at = excluded.published_at
    -- By the time at which this publish began: it may have waited here until the window was over.
    WHERE (SELECT dedupe_window = '0' OR publication.published_at < excluded.published_at - dedupe_window FROM channel)
    RETURNING message_id
),
accepted AS MATERIALIZED (
    SELECT *
    FROM offered
    WHERE NOT bounded AND (client_message_id IS NULL OR id IN (SELECT message_id FROM taken))
),
message AS (
    INSERT INTO pulljobs_message (
        id, channel_id, producer_id, published_at, priority, key, client_message_id,
        content_type, headers, payload
    )
    SELECT
        id, channel_id, %(producer_id)s::bigint, now, priority, key, client_message_id,
        content_type, coalesce(headers, '{}'), payload
    FROM accepted
),
job AS (
    INSERT INTO pulljobs_job (
        id, consumer_id, message_id, batch_id, available_at, priority, state, key, turn_key, retry_count, deliveries, cost
    )
    SELECT
        ${new_id},
        consumer.id,
        accepted.id,
        %(batch_id)s::bigint,
        greatest(now, coalesce(accepted.available_at, now) + coalesce(delay, '0')),
        priority,
        'QUEUED',
        CASE WHEN consumer.exclusive_keys OR consumer.max_queued_per_key > 0 THEN key END,
        CASE WHEN consumer.takes_turns THEN coalesce(key, '') END,
        0,
        0,
        cost
    FROM accepted
    JOIN pulljobs_consumer AS consumer ON consumer.channel_id = accepted.channel_id
    WHERE consumer.deleted_at IS NULL AND (consumer.id = %(only_consumer_id)s::bigint) IS NOT FALSE
    ORDER BY accepted.ordinal, consumer.id
    RETURNING id, message_id, consumer_id
),
fanned_out AS (
    SELECT
        message_id,
        array_agg(id ORDER BY consumer_id) AS job_ids,
        array_agg(consumer_id ORDER BY consumer_id) AS consumer_ids
    FROM job
    GROUP BY message_id
)
SELECT
    accepted.id AS message_id,
    coalesce(fanned_out.job_ids, '{}') AS job_ids,
    coalesce(fanned_out.consumer_ids, '{}') AS consumer_ids,
    offered.bounded
FROM offered
LEFT JOIN accepted ON accepted.ordinal = offered.ordinal
LEFT JOIN fanned_out ON fanned_out.message_id = accepted.id
ORDER BY offered.ordinal
