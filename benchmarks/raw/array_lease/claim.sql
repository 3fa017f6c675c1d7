-- Scan from the low-water mark. The delete goes through the ctid, which is stable: rows are locked.
WITH pick AS MATERIALIZED (
    SELECT ctid AS row_ctid, job
    FROM raw_array_job AS job
    WHERE consumer_id = %(consumer_id)s::bigint
        AND priority = 0
        AND (available_at, id) > (%(mark_at)s::timestamptz, %(mark_id)s::bigint)
        AND available_at <= now()
    ORDER BY available_at, id
    LIMIT %(wanted)s::int
    FOR UPDATE SKIP LOCKED
),
lease AS (
    INSERT INTO raw_array_lease (lease_token, claimed_at, leased_until, jobs)
    SELECT
        %(lease_token)s::uuid,
        clock_timestamp(),
        clock_timestamp() + interval '30 s',
        ARRAY(SELECT job FROM pick)
    WHERE EXISTS (SELECT FROM pick)
),
claimed AS (
    DELETE FROM raw_array_job
    WHERE ctid = ANY(ARRAY(SELECT row_ctid FROM pick))
)
SELECT (job).id, (job).available_at, (job).message_id
FROM pick
