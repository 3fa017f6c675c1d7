-- Read the buckets of a consumer and of its group without locking them.
-- Event: none.
-- Parameters: consumer_id bigint, group_id bigint (NULL: it has none).
-- Returns a row for each of them that has a rate, the group's first: group_id bigint (0: the consumer), now timestamptz, tokens, per_second,
--   burst float8, window_seconds, seconds_to_window float8 (NULL: a token bucket).
-- Locks: none. Index: primary keys.
WITH ${limit_holders},
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
bucket AS MATERIALIZED (
    SELECT bucket.*
    FROM holder
    CROSS JOIN LATERAL (
        SELECT *
        FROM pulljobs_flow_bucket
        WHERE consumer_id = holder.consumer_id AND group_id = holder.group_id
        LIMIT 1
    ) AS bucket
),
${bucket_level}
SELECT group_id, now, tokens, per_second, burst, window_seconds, seconds_to_window
FROM level
WHERE per_second IS NOT NULL
ORDER BY consumer_id
