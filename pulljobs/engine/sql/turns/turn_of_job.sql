-- Read whether the limits of a key allow a job of it.
-- Event: none; in the transaction of lock_turn.sql, and a statement of its own, so that it sees all that was claimed before; or to explain.
-- Parameters: consumer_id bigint, key text, cost int (of a job).
-- Returns one row: now timestamptz; slots int (NULL: any number), holder_ids bigint[]; tokens, burst, per_second float8 (NULL: no rate),
--   token_seconds, throttle_seconds float8 (until the tokens of the job and the end of a throttle; NULL: none to wait for). A key that is not
--   known has all that its consumer allows. No row: no such consumer.
-- Locks: none. Index: consumer, flow key and job primary key.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
)
SELECT
    clock.now,
    consumer.max_in_flight_per_key AS slots,
    ARRAY(
        SELECT holder.id
        ${live_holders}
    ) AS holder_ids,
    level.tokens,
    level.burst,
    consumer.key_rate_per_second AS per_second,
    CASE
        WHEN level.tokens < least(%(cost)s::int, level.burst)
            THEN (least(%(cost)s::int, level.burst) - level.tokens) / consumer.key_rate_per_second
    END AS token_seconds,
    CASE
        WHEN row.throttled_until > clock.now THEN extract(epoch FROM row.throttled_until - clock.now)::float8
    END AS throttle_seconds
FROM pulljobs_consumer AS consumer
CROSS JOIN clock
LEFT JOIN pulljobs_flow_key AS row ON row.consumer_id = consumer.id AND row.key = %(key)s::text
CROSS JOIN LATERAL (
    SELECT
        least(
            coalesce(consumer.rate_burst, greatest(consumer.key_rate_per_second, 1)),
            row.tokens + consumer.key_rate_per_second * greatest(date_part('epoch', clock.now - row.filled_at), 0)
        ) AS tokens,
        coalesce(consumer.rate_burst::float8, greatest(consumer.key_rate_per_second, 1)) AS burst
) AS level
WHERE consumer.id = %(consumer_id)s::bigint
