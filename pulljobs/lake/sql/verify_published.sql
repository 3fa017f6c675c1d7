-- Look for messages without a job for a consumer, like verify_messages.sql, except for bulk publishes to one consumer.
-- Event: none.
-- Parameters: after bigint (the last id of the page before), wanted int, since bigint (what has lower ids may have outlived the
--   archive), settled interval (how long before a publish a consumer must have been left alone to count).
-- Returns one row: reached bigint (NULL: the end), looked_at int8, invariants text[] and ids bigint[] of one length: messages.
-- Locks: none. Index: primary key of each partition, pulljobs_job_fan_out, archived message_id; where some seem to lack a job all
--   bulk publishes are read.
WITH page AS MATERIALIZED (
    SELECT id, channel_id, key, published_at
    FROM pulljobs_message
    WHERE id < %(after)s::bigint AND id >= %(since)s::bigint
    ORDER BY id DESC
    LIMIT %(wanted)s::int
),
missing AS MATERIALIZED (
    SELECT page.id, page.channel_id, page.published_at, consumer.id AS consumer_id
    FROM page
    JOIN pulljobs_consumer AS consumer
        ON consumer.channel_id = page.channel_id
        AND consumer.deleted_at IS NULL
        -- A consumer that was made, restored or changed during or after the publish does not count.
        AND greatest(consumer.created_at, consumer.changed_at) < page.published_at - %(settled)s::interval
        -- Another message may have taken its job.
        AND NOT (page.key IS NOT NULL AND consumer.max_queued_per_key > 0 AND consumer.key_overflow = 'replace')
    WHERE NOT EXISTS (
            SELECT FROM pulljobs_job WHERE message_id = page.id AND consumer_id = consumer.id
        )
        AND NOT EXISTS (
            SELECT FROM pulljobs_archived_job WHERE message_id = page.id AND consumer_id = consumer.id
        )
),
alone AS MATERIALIZED (
    -- Bulk publishes to one consumer: it is not known which messages of their time are theirs.
    SELECT
        channel_id,
        only_consumer_id,
        -- The first publishes of a sink were deleted (forget_batches.sql).
        CASE WHEN query_id IS NULL THEN opened_at ELSE '-infinity' END AS since,
        CASE WHEN state = 'open' THEN 'infinity' ELSE settled_at END AS until
    FROM pulljobs_bulk_publish
    WHERE only_consumer_id IS NOT NULL AND channel_id IN (SELECT channel_id FROM missing)
),
broken (invariant, id) AS (
    SELECT DISTINCT 'consumer_has_its_job', id
    FROM missing
    WHERE NOT EXISTS (
            SELECT
            FROM alone
            WHERE alone.channel_id = missing.channel_id
                AND only_consumer_id <> missing.consumer_id
                AND missing.published_at BETWEEN since AND until
        )
)
SELECT
    (SELECT min(id) FROM page) AS reached,
    (SELECT count(*) FROM page) AS looked_at,
    ARRAY(SELECT invariant FROM broken ORDER BY id, invariant) AS invariants,
    ARRAY(SELECT id FROM broken ORDER BY id, invariant) AS ids
