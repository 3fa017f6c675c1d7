-- List the keys after the cursor that have jobs, by one descent of the index on keys for each, and make missing rows.
WITH RECURSIVE ring AS (
    (
        SELECT key
        FROM raw_flow_job
        WHERE consumer_id = %(consumer_id)s::bigint AND key > %(cursor)s::text
        ORDER BY key
        LIMIT 1
    )
    UNION ALL
    SELECT next.key
    FROM ring
    CROSS JOIN LATERAL (
        SELECT key
        FROM raw_flow_job
        WHERE consumer_id = %(consumer_id)s::bigint AND key > ring.key
        ORDER BY key
        LIMIT 1
    ) AS next
),
seen AS MATERIALIZED (
    SELECT key
    FROM ring
    LIMIT %(most)s::int
),
made AS (
    INSERT INTO raw_flow_key (consumer_id, key, tokens)
    SELECT %(consumer_id)s::bigint, key, %(burst)s::float8
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
SELECT key
FROM seen
