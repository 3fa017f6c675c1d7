-- The claim of a consumer with a rate: after lock_bucket.sql it takes no more jobs than there are tokens.
WITH bucket AS MATERIALIZED (
    SELECT
        clock.now,
        least(%(burst)s::float8, tokens + %(per_second)s::float8 * date_part('epoch', clock.now - filled_at)) AS tokens
    FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
    CROSS JOIN raw_flow_bucket
    WHERE consumer_id = %(consumer_id)s::bigint
),
pick AS MATERIALIZED (
    SELECT job.*
    FROM bucket
    CROSS JOIN LATERAL (
        SELECT ctid AS job_row, id, message_id, available_at
        FROM raw_flow_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = 0
            AND (available_at, id) > (%(mark_at)s::timestamptz, %(mark_id)s::bigint)
            AND available_at <= bucket.now
            AND state = 0
        ORDER BY available_at, id
        LIMIT least(%(wanted)s::int, floor(bucket.tokens)::int)
        FOR UPDATE SKIP LOCKED
    ) AS job
),
lease AS (
    INSERT INTO raw_flow_lease (lease_token, claimed_at, leased_until, job_ids)
    SELECT
        %(lease_token)s::uuid,
        clock_timestamp(),
        clock_timestamp() + interval '30 s',
        ARRAY(SELECT id FROM pick)
    WHERE EXISTS (SELECT FROM pick)
),
claimed AS (
    UPDATE raw_flow_job
    SET state = 1, lease_token = %(lease_token)s::uuid, deliveries = deliveries + 1
    WHERE ctid = ANY(ARRAY(SELECT job_row FROM pick))
),
spent AS (
    UPDATE raw_flow_bucket
    SET tokens = (SELECT tokens FROM bucket) - (SELECT count(*) FROM pick), filled_at = (SELECT now FROM bucket)
    WHERE consumer_id = %(consumer_id)s::bigint AND EXISTS (SELECT FROM pick)
)
SELECT id, message_id, available_at, NULL::text AS key
FROM pick
