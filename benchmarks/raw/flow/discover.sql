-- Walk the jobs that became claimable above the low-water mark, and give their keys a turn. It writes no job.
WITH seen AS MATERIALIZED (
    SELECT id, key, available_at
    FROM raw_flow_job
    WHERE consumer_id = %(consumer_id)s::bigint
        AND priority = 0
        AND (available_at, id) > (%(mark_at)s::timestamptz, %(mark_id)s::bigint)
        AND available_at <= now()
        AND state = 0
    ORDER BY available_at, id
    LIMIT %(most)s::int
),
made AS (
    INSERT INTO raw_flow_key AS row (consumer_id, key, turn_at, tokens, mark_id)
    SELECT %(consumer_id)s::bigint, first.key, clock_timestamp(), %(burst)s::float8, first.id - 1
    FROM (SELECT key, min(id) AS id FROM seen GROUP BY key ORDER BY key) AS first
    LEFT JOIN LATERAL (
        SELECT turn_at, is_full, mark_id
        FROM raw_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint AND key = first.key
        LIMIT 1
    ) AS known ON true
    WHERE known.mark_id IS NULL OR (known.turn_at IS NULL AND NOT known.is_full) OR known.mark_id >= first.id
    ON CONFLICT (consumer_id, key) DO UPDATE
    SET
        turn_at = CASE WHEN row.is_full THEN NULL ELSE coalesce(row.turn_at, excluded.turn_at) END,
        mark_id = least(row.mark_id, excluded.mark_id),
        writer = excluded.writer
    RETURNING key
)
SELECT
    count(*) AS jobs,
    (SELECT count(*) FROM made) AS keys,
    max(available_at) AS mark_at,
    (SELECT id FROM seen ORDER BY available_at DESC, id DESC LIMIT 1) AS mark_id
FROM seen
