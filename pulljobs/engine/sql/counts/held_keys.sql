-- Count the keys of consumers that no claim may serve now.
-- Event: none.
-- Parameters: consumer_ids bigint[] (whose keys take turns), cap int.
-- Returns for each: consumer_id, full_keys int8 (without a free slot), later_keys int8 (without a token, or throttled), each at most cap;
--   is_due boolean (the first key of the ring may be served).
-- Locks: none. Index: pulljobs_flow_key_full, pulljobs_flow_key_turn.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
)
SELECT
    asked.consumer_id,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pulljobs_flow_key
            WHERE consumer_id = asked.consumer_id AND is_full
            LIMIT %(cap)s::int
        ) AS row
    ) AS full_keys,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pulljobs_flow_key
            WHERE consumer_id = asked.consumer_id AND turn_at > (SELECT now FROM clock)
            LIMIT %(cap)s::int
        ) AS row
    ) AS later_keys,
    coalesce((
        SELECT turn_at <= (SELECT now FROM clock)
        FROM pulljobs_flow_key
        WHERE consumer_id = asked.consumer_id AND turn_at IS NOT NULL
        ORDER BY turn_rank DESC, turn_at
        LIMIT 1
    ), false) AS is_due
FROM unnest(%(consumer_ids)s::bigint[]) AS asked (consumer_id)
