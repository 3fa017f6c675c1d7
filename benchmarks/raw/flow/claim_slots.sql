-- Claim jobs in claim order, and give each its slot of its key's rate: a job whose slot is later moves there in the index.
-- `filled_at` is the slot of the next job of the key (GCRA). A job that came back at its slot is taken without a look at the key.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
bucket AS MATERIALIZED (
    SELECT row.*
    FROM unnest(%(keys)s::text[]) AS asked (key)
    CROSS JOIN LATERAL (
        SELECT
            ctid AS key_row, key,
            greatest(
                filled_at,
                (SELECT now FROM clock) - make_interval(secs => (%(burst)s::float8 - 1) / %(per_second)s::float8)
            ) AS slot
        FROM raw_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint
            AND key = asked.key
            AND pg_visible_in_snapshot(writer, (SELECT pg_current_snapshot()))
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS row
),
met AS MATERIALIZED (
    SELECT ctid AS job_row, id, message_id, available_at, key, has_slot
    FROM raw_flow_job
    WHERE consumer_id = %(consumer_id)s::bigint
        AND priority = 0
        AND (available_at, id) > (%(mark_at)s::timestamptz, %(mark_id)s::bigint)
        AND available_at <= (SELECT now FROM clock)
        AND state = 0
    ORDER BY available_at, id
    LIMIT %(wanted)s::int
    FOR UPDATE SKIP LOCKED
),
given AS MATERIALIZED (
    SELECT
        met.*, bucket.key_row,
        CASE
            WHEN has_slot THEN (SELECT now FROM clock)
            ELSE bucket.slot + make_interval(
                secs => (count(*) FILTER (WHERE NOT has_slot) OVER (PARTITION BY met.key ORDER BY available_at, id) - 1)
                    / %(per_second)s::float8
            )
        END AS slot
    FROM met
    LEFT JOIN bucket USING (key)
    WHERE has_slot OR bucket.key IS NOT NULL
),
pick AS MATERIALIZED (
    SELECT *
    FROM given
    WHERE slot <= (SELECT now FROM clock)
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
postponed AS (
    UPDATE raw_flow_job AS row
    SET available_at = given.slot, has_slot = true
    FROM given
    WHERE row.ctid = given.job_row AND given.slot > (SELECT now FROM clock)
),
spent AS (
    UPDATE raw_flow_key AS row
    SET filled_at = next.slot, writer = pg_current_xact_id()
    FROM (
        SELECT key_row, max(slot) + make_interval(secs => 1 / %(per_second)s::float8) AS slot
        FROM given
        WHERE NOT has_slot
        GROUP BY key_row
    ) AS next
    WHERE row.ctid = next.key_row
)
SELECT id, message_id, available_at, key, slot <= (SELECT now FROM clock) AS is_taken
FROM given
