-- Publish a staged chunk of a bulk publish as publish.sql does, and return counts instead of rows.
-- Event: publish. In the caller's transaction.
-- Parameters: channel text, producer_id bigint, dedupe_window interval, only_consumer_id bigint (NULL: all), number bigint: of the
--   chunk. `pulljobs_staged` stands for the table of the publish (pyspark_pulljobs/staging.py); an array that is empty there is
--   of NULLs.
-- Returns one row: messages, jobs, duplicates, consumer_ids, bounded (nothing was written, because some keys need a
--   check first: then publish_one.sql publishes all), message_ids of all rows in order where they replay jobs (NULL in it: a
--   duplicate), else NULL. No row: no such channel.
-- Locks: the publication rows of the client ids, in order of the id. Index: channel name, publication key.
WITH ${clock_after_id},
chunk AS MATERIALIZED (
    SELECT *
    FROM pulljobs_staged
    WHERE number = %(number)s::bigint
),
channel AS MATERIALIZED (
    SELECT id, coalesce(dedupe_window, %(dedupe_window)s::interval) AS dedupe_window
    FROM pulljobs_channel
    WHERE name = %(channel)s::text
),
consumer AS MATERIALIZED (
    SELECT
        consumer.id,
        exclusive_keys OR max_queued_per_key > 0 AS is_keyed,
        takes_turns,
        max_queued_per_key > 0 AND array_remove(chunk.keys, NULL) <> '{}' AS is_bounded
    FROM channel, chunk, pulljobs_consumer AS consumer
    WHERE channel_id = channel.id
        AND deleted_at IS NULL
        AND (consumer.id = %(only_consumer_id)s::bigint) IS NOT FALSE
    ORDER BY consumer.id
),
offered AS MATERIALIZED (
    SELECT
        row.*,
        clock.now,
        ((((extract(epoch FROM clock_timestamp()) * 1000)::bigint - ${epoch_milliseconds}) << 22)
            | nextval('pulljobs_id')) AS id
    FROM channel, clock, chunk, unnest(
        payloads, content_types, headers, keys, priorities, client_message_ids, delays, available_ats, costs
    ) WITH ORDINALITY AS row (
        payload, content_type, headers, key, priority, client_message_id, delay, available_at, cost, ordinal
    )
    WHERE NOT EXISTS (SELECT FROM consumer WHERE is_bounded)
),
taken AS (
    INSERT INTO pulljobs_publication AS publication (
        channel_id, client_message_id, message_id, published_at
    )
    SELECT DISTINCT ON (client_message_id) channel.id, client_message_id, offered.id, now
    FROM channel, offered
    WHERE client_message_id IS NOT NULL
    ORDER BY client_message_id, ordinal
    ON CONFLICT (channel_id, client_message_id) DO UPDATE
    SET message_id = excluded.message_id, published_at = excluded.published_at
    -- By the time at which this publish began: it may have waited here until the window was over.
    WHERE (SELECT dedupe_window = '0' OR publication.published_at < excluded.published_at - dedupe_window FROM channel)
    RETURNING message_id
),
accepted AS NOT MATERIALIZED (
    SELECT *
    FROM offered
    WHERE client_message_id IS NULL OR id IN (SELECT message_id FROM taken)
),
message AS (
    INSERT INTO pulljobs_message (
        id, channel_id, producer_id, published_at, priority, key, client_message_id,
        content_type, headers, payload
    )
    SELECT
        accepted.id, channel.id, %(producer_id)s::bigint, now, priority, key, client_message_id,
        content_type, headers, payload
    FROM channel, accepted
),
job AS (
    INSERT INTO pulljobs_job (consumer_id, message_id, available_at, priority, state, key, turn_key, retry_count, deliveries, cost)
    SELECT
        consumer.id,
        accepted.id,
        greatest(now, coalesce(available_at, now) + coalesce(delay, '0')),
        priority,
        'QUEUED',
        CASE WHEN is_keyed THEN key END,
        CASE WHEN takes_turns THEN coalesce(key, '') END,
        0,
        0,
        cost
    FROM accepted, consumer
    ORDER BY ordinal, consumer.id
),
counted AS MATERIALIZED (
    SELECT count(*) AS messages
    FROM accepted
)
SELECT
    counted.messages,
    counted.messages * (SELECT count(*) FROM consumer) AS jobs,
    (SELECT count(*) FROM offered) - counted.messages AS duplicates,
    ARRAY(SELECT id FROM consumer) AS consumer_ids,
    EXISTS (SELECT FROM consumer WHERE is_bounded) AS bounded,
    CASE
        WHEN chunk.originals IS NOT NULL THEN ARRAY(
            SELECT accepted.id
            FROM offered
            LEFT JOIN accepted USING (ordinal)
            ORDER BY ordinal
        )
    END AS message_ids
FROM channel, chunk, counted
