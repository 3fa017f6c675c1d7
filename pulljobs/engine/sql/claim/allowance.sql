-- Read how many jobs the limits of a consumer and of its group allow a claim, and lock their buckets.
-- Event: none; in the transaction of lock_consumer.sql, and a statement of its own, so that it sees all that was claimed before.
-- Parameters: consumer_id bigint, group_id bigint (NULL: it has none).
-- Returns a row for the group, if there is one, and one for the consumer: consumer_id, group_id (0 in the row of the other); room
--   int8, 0 at the least (NULL: any number); tokens, per_second, burst float8 (without a rate tokens are NULL, and burst says nothing), window_seconds float8 (NULL: a
--   token bucket), seconds_to_window float8 (until the next window), read_at timestamptz (the time of these tokens), is_outdated boolean
--   (the bucket must be written, even if no token is spent); no row: no such consumer, or it has another group.
-- Locks: the buckets, the group's first, waiting for a release that gives tokens back. Index: consumer, group, bucket and job primary
--   key, consumer limit_group. No index for the leases: there are as many as claims in flight; and while a snapshot is held, dead rows of
--   those that ended since, which are read too.
WITH ${limit_holders},
bucket AS MATERIALIZED (
    SELECT bucket.*
    FROM holder
    CROSS JOIN LATERAL (
        SELECT *
        FROM pulljobs_flow_bucket
        WHERE consumer_id = holder.consumer_id AND group_id = holder.group_id
        FOR NO KEY UPDATE
    ) AS bucket
),
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
    FROM (SELECT count(*) AS buckets FROM bucket) AS locked
    WHERE buckets IS NOT NULL
),
${bucket_level}
SELECT
    level.consumer_id,
    level.group_id,
    CASE
        WHEN level.max_in_flight IS NOT NULL THEN greatest(level.max_in_flight - (
            SELECT count(*)
            FROM pulljobs_lease AS lease
            CROSS JOIN unnest(lease.job_ids) AS member (job_id)
            CROSS JOIN LATERAL (
                -- One by one: a join might scan the table.
                SELECT
                FROM pulljobs_job
                WHERE id = member.job_id AND lease_token = lease.lease_token
                LIMIT 1
            ) AS job
            WHERE lease.consumer_id = ANY(
                CASE
                    WHEN level.group_id = 0 THEN ARRAY[level.consumer_id]
                    ELSE ARRAY(SELECT id FROM pulljobs_consumer WHERE limit_group_id = level.group_id)
                END
            )
        ), 0)
    END AS room,
    level.tokens,
    level.per_second,
    level.burst,
    level.window_seconds,
    level.seconds_to_window,
    level.now AS read_at,
    level.is_outdated
FROM level
ORDER BY level.consumer_id
