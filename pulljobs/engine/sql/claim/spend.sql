-- Take tokens out of the bucket of a consumer.
-- Event: none; after a claim, in the transaction of allowance.sql, which has locked the bucket.
-- Parameters: consumer_id bigint, jobs int (one token each); of allowance.sql: tokens, per_second, burst float8, read_at timestamptz.
-- Returns: nothing.
-- Locks: the bucket, which is locked already. Index: primary key; the update is HOT.
INSERT INTO pulljobs_flow_bucket AS bucket (consumer_id, tokens, filled_at, per_second, charged_since)
SELECT
    %(consumer_id)s::bigint,
    -- Filled up to this moment, which comes after the time of the claim: the claim may have waited in between.
    least(
        %(burst)s::float8,
        %(tokens)s::float8
            + %(per_second)s::float8 * greatest(date_part('epoch', clock.now - %(read_at)s::timestamptz), 0)
    ) - %(jobs)s::int,
    clock.now,
    %(per_second)s::float8,
    %(read_at)s::timestamptz
FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
ON CONFLICT (consumer_id) DO UPDATE
SET tokens = excluded.tokens, filled_at = excluded.filled_at, per_second = excluded.per_second
