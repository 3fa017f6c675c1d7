-- Read the bucket of a consumer without locking it.
-- Event: none.
-- Parameters: consumer_id bigint.
-- Returns one row: now timestamptz, tokens, per_second, burst float8; no row: the consumer has no rate, or does not exist.
-- Locks: none. Index: primary keys.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
bucket AS MATERIALIZED (
    SELECT *
    FROM pulljobs_flow_bucket
    WHERE consumer_id = %(consumer_id)s::bigint
),
${bucket_level}
SELECT now, tokens, per_second, burst
FROM level
WHERE per_second IS NOT NULL
