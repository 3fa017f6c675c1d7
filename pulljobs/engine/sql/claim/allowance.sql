-- Read how many jobs the limits of a consumer allow a claim, and lock its bucket.
-- Event: none; in the transaction of lock_consumer.sql, and a statement of its own, so that it sees all that was claimed before.
-- Parameters: consumer_id bigint.
-- Returns one row: room int8, 0 at the least (NULL: any number); of a consumer with a rate, else NULL: tokens, per_second, burst
--   float8, read_at timestamptz (the time of these tokens), is_outdated boolean (the bucket must be written, even if no token is
--   spent); no row: no such consumer.
-- Locks: the bucket, waiting for a release that gives tokens back. Index: consumer, bucket and job primary key. No index for the
--   leases: there are as many as claims in flight; and while a snapshot is held, dead rows of those that ended since, which are
--   read too.
WITH bucket AS MATERIALIZED (
    SELECT *
    FROM pulljobs_flow_bucket
    WHERE consumer_id = %(consumer_id)s::bigint
    FOR NO KEY UPDATE
),
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
    FROM (SELECT count(*) AS buckets FROM bucket) AS locked
    WHERE buckets IS NOT NULL
),
${bucket_level}
SELECT
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
            WHERE lease.consumer_id = %(consumer_id)s::bigint
        ), 0)
    END AS room,
    level.tokens,
    level.per_second,
    level.burst,
    level.now AS read_at,
    level.is_outdated
FROM level
