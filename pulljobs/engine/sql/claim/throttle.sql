-- Throttle consumers: nothing is claimed for a while. A throttle that lasts longer stays.
-- Event: none.
-- Parameters: consumer_ids bigint[], seconds float8[] (of one length; until then nothing is claimed).
-- Returns: id of the consumers that are throttled for longer than before.
-- Locks: the consumers' rows, in order of id, waiting for claims that lock them. Index: primary key; the update is HOT.
WITH asked AS MATERIALIZED (
    SELECT consumer_id, clock_timestamp() + seconds * interval '1 second' AS until
    FROM unnest(%(consumer_ids)s::bigint[], %(seconds)s::float8[]) AS asked (consumer_id, seconds)
),
locked AS MATERIALIZED (
    SELECT id
    FROM pulljobs_consumer
    WHERE id = ANY(%(consumer_ids)s::bigint[])
    ORDER BY id
    FOR NO KEY UPDATE
)
UPDATE pulljobs_consumer AS consumer
SET throttled_until = asked.until
FROM locked
JOIN asked ON asked.consumer_id = locked.id
WHERE consumer.id = locked.id
    AND (consumer.throttled_until IS NULL OR consumer.throttled_until < asked.until)
RETURNING consumer.id
