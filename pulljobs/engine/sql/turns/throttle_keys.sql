-- Let nothing of some keys be claimed for a time.
-- Event: none.
-- Parameters: consumer_ids bigint[], keys text[], seconds float8[], of one length.
-- Returns: consumer_id of each key; no row for those of consumers whose claims do not go by key. A throttle that lasts longer stays.
-- Locks: the rows of the keys, in order, waiting for claims; made if missing. Index: flow key, consumer primary key.
WITH transaction AS MATERIALIZED (
    -- The clock is read after the transaction has its id: claims rely on that order (low_water_marks.py).
    SELECT pg_current_xact_id() AS xid
)
INSERT INTO pulljobs_flow_key AS row (consumer_id, key, throttled_until)
SELECT asked.consumer_id, asked.key, clock_timestamp() + make_interval(secs => max(asked.seconds))
FROM transaction
CROSS JOIN unnest(%(consumer_ids)s::bigint[], %(keys)s::text[], %(seconds)s::float8[]) AS asked (consumer_id, key, seconds)
CROSS JOIN LATERAL (
    SELECT
    FROM pulljobs_consumer
    WHERE id = asked.consumer_id AND takes_turns
    LIMIT 1
) AS consumer
WHERE transaction.xid IS NOT NULL
GROUP BY asked.consumer_id, asked.key
ORDER BY asked.consumer_id, asked.key
ON CONFLICT (consumer_id, key) DO UPDATE
SET
    throttled_until = greatest(row.throttled_until, excluded.throttled_until),
    turn_at = CASE WHEN row.turn_at IS NOT NULL THEN greatest(row.turn_at, excluded.throttled_until) END,
    writer = pg_current_xact_id()
RETURNING row.consumer_id
