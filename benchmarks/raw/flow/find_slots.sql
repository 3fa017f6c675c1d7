-- Make the rows of keys whose jobs the next claim meets.
WITH seen AS MATERIALIZED (
    SELECT key
    FROM raw_flow_job
    WHERE consumer_id = %(consumer_id)s::bigint
        AND priority = 0
        AND (available_at, id) > (%(mark_at)s::timestamptz, %(mark_id)s::bigint)
        AND available_at <= now()
        AND state = 0
    ORDER BY available_at, id
    LIMIT %(wanted)s::int
),
made AS (
    INSERT INTO raw_flow_key (consumer_id, key, filled_at)
    SELECT DISTINCT %(consumer_id)s::bigint, key, '-infinity'::timestamptz
    FROM seen
    LEFT JOIN LATERAL (
        SELECT consumer_id
        FROM raw_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint AND key = seen.key
        LIMIT 1
    ) AS known ON true
    WHERE known.consumer_id IS NULL
    ORDER BY key
    ON CONFLICT DO NOTHING
)
SELECT DISTINCT key
FROM seen
ORDER BY key
