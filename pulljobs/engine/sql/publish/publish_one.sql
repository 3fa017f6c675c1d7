-- Publish one message on a channel: one job for each of its consumers, or for one of them only. This is publish.sql without arrays.
-- Event: publish. In the caller's transaction.
-- Parameters: channel text, producer_id bigint, dedupe_window interval, only_consumer_id bigint (NULL: each),
--   batch_id bigint (NULL: none), payload bytea, content_type text, headers jsonb, key text, priority smallint, cost int (NULL: 1), client_message_id text, delay interval, available_at timestamptz (NULL where not given),
--   replacing bigint[] (consumers that get no new job, for one they have takes the message; NULL: bounds were not checked).
-- Returns: message_id, job_ids, consumer_ids, awaited (a process waits for one of them), bounded; message_id NULL: a duplicate, or bounded: nothing was written, for the
--   key must be looked at first. No row: no such channel.
-- Locks: the publication row of the client id. Index: channel name, publication key.
WITH ${clock_after_id},
offered AS MATERIALIZED (
    SELECT
        channel.id AS channel_id,
        CASE
            WHEN %(key)s::text IS NULL OR %(replacing)s::bigint[] IS NOT NULL THEN false
            ELSE EXISTS (
                SELECT
                FROM pulljobs_consumer
                WHERE channel_id = channel.id
                    AND max_queued_per_key > 0
                    AND deleted_at IS NULL
                    AND (id = %(only_consumer_id)s::bigint) IS NOT FALSE
            )
        END AS bounded,
        coalesce(dedupe_window, %(dedupe_window)s::interval) AS dedupe_window,
        clock.now,
        ${new_id} AS id
    FROM pulljobs_channel AS channel, clock
    WHERE name = %(channel)s::text
),
taken AS (
    INSERT INTO pulljobs_publication AS publication (
        channel_id, client_message_id, message_id, published_at
    )
    SELECT channel_id, %(client_message_id)s::text, id, now
    FROM offered
    WHERE %(client_message_id)s::text IS NOT NULL AND NOT bounded
    ON CONFLICT (channel_id, client_message_id) DO UPDATE
    SET message_id = excluded.message_id, published_at = excluded.published_at
    -- By the time at which this publish began: it may have waited here until the window was over.
    WHERE (SELECT dedupe_window = '0' OR publication.published_at < excluded.published_at - dedupe_window FROM offered)
    RETURNING message_id
),
accepted AS MATERIALIZED (
    SELECT *
    FROM offered
    WHERE NOT bounded AND (%(client_message_id)s::text IS NULL OR id IN (SELECT message_id FROM taken))
),
message AS (
    INSERT INTO pulljobs_message (
        id, channel_id, producer_id, published_at, priority, key, client_message_id,
        content_type, headers, payload
    )
    SELECT
        id, channel_id, %(producer_id)s::bigint, now, %(priority)s::smallint, %(key)s::text,
        %(client_message_id)s::text, %(content_type)s::text, %(headers)s::jsonb, %(payload)s::bytea
    FROM accepted
),
job AS (
    INSERT INTO pulljobs_job (
        consumer_id, message_id, batch_id, available_at, priority, state, key, turn_key, retry_count, deliveries, cost
    )
    SELECT
        consumer.id,
        accepted.id,
        %(batch_id)s::bigint,
        greatest(
            now,
            -- In seconds: a day of an interval may have 23 or 25 hours.
            coalesce(%(available_at)s::timestamptz, now)
                + coalesce(make_interval(secs => date_part('epoch', %(delay)s::interval)), '0')
        ),
        %(priority)s::smallint,
        'QUEUED',
        CASE WHEN consumer.exclusive_keys OR consumer.max_queued_per_key > 0 THEN %(key)s::text END,
        CASE WHEN consumer.takes_turns THEN coalesce(%(key)s::text, '') END,
        0,
        0,
        %(cost)s::int
    FROM accepted
    JOIN pulljobs_consumer AS consumer ON consumer.channel_id = accepted.channel_id
    WHERE consumer.deleted_at IS NULL
        AND (consumer.id = ANY(%(replacing)s::bigint[])) IS NOT TRUE
        AND (consumer.id = %(only_consumer_id)s::bigint) IS NOT FALSE
    ORDER BY consumer.id
    RETURNING id, consumer_id
)
SELECT
    (SELECT id FROM accepted) AS message_id,
    ARRAY(SELECT id FROM job ORDER BY consumer_id) AS job_ids,
    ARRAY(SELECT consumer_id FROM job ORDER BY consumer_id) AS consumer_ids,
    EXISTS (
        SELECT
        FROM pulljobs_pull_waiter
        WHERE consumer_id = ANY(ARRAY(SELECT consumer_id FROM job)) AND waiting_until > clock_timestamp()
    ) AS awaited,
    offered.bounded
FROM offered
