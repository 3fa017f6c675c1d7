-- Read the keys to claim next of consumers, and count their keys that wait for a limit.
-- Event: none.
-- Parameters: consumer_ids bigint[] (whose keys take turns), cap int, most_keys int.
-- Returns for each: consumer_id; throttled_keys, full_keys int8 (without a free slot), each at most cap; next_keys text[], due_since timestamptz[]
--   (of up to most_keys keys that may be served now, in the order of their turns).
-- Locks: none. Index: flow key primary key, pulljobs_flow_key_full, pulljobs_flow_key_turn.
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
            WHERE consumer_id = asked.consumer_id AND throttled_until > (SELECT now FROM clock)
            ORDER BY key
            LIMIT %(cap)s::int
        ) AS row
    ) AS throttled_keys,
    (
        SELECT count(*)
        FROM (
            SELECT
            FROM pulljobs_flow_key
            WHERE consumer_id = asked.consumer_id AND is_full
            LIMIT %(cap)s::int
        ) AS row
    ) AS full_keys,
    due.next_keys,
    due.due_since
FROM unnest(%(consumer_ids)s::bigint[]) AS asked (consumer_id)
CROSS JOIN LATERAL (
    SELECT
        coalesce(array_agg(row.key ORDER BY row.place), '{}') AS next_keys,
        coalesce(array_agg(row.turn_at ORDER BY row.place), '{}') AS due_since
    FROM (
        SELECT key, turn_at, row_number() OVER (ORDER BY turn_rank DESC, turn_at, key) AS place
        FROM pulljobs_flow_key
        WHERE consumer_id = asked.consumer_id AND turn_at <= (SELECT now FROM clock)
        ORDER BY turn_rank DESC, turn_at, key
        LIMIT %(most_keys)s::int
    ) AS row
) AS due
