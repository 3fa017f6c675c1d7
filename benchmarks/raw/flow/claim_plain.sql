-- The claim without limits: scan from the low-water mark.
WITH pick AS MATERIALIZED (
    SELECT ctid, id, message_id, available_at
    FROM raw_flow_job
    WHERE consumer_id = %(consumer_id)s::bigint
        AND priority = 0
        AND (available_at, id) > (%(mark_at)s::timestamptz, %(mark_id)s::bigint)
        AND available_at <= now()
        AND state = 0
    ORDER BY available_at, id
    LIMIT %(wanted)s::int
    FOR UPDATE SKIP LOCKED
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
    WHERE ctid = ANY(ARRAY(SELECT ctid FROM pick))
)
SELECT id, message_id, available_at, NULL::text AS key
FROM pick
