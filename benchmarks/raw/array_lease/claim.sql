-- From the floor on; through the ctid, for the rows are locked.
WITH pick AS MATERIALIZED (
    SELECT ctid AS place, job
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
    INSERT INTO raw_array_lease (token, claimed_at, leased_until, jobs)
    SELECT
        %(token)s::uuid,
        clock_timestamp(),
        clock_timestamp() + interval '30 s',
        ARRAY(SELECT job FROM pick)
    WHERE EXISTS (SELECT FROM pick)
),
claimed AS (
    DELETE FROM raw_array_job
    WHERE ctid = ANY(ARRAY(SELECT place FROM pick))
)
SELECT (job).id, (job).available_at, (job).message_id
FROM pick
