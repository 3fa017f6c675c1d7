-- Count the settlements of spans of time: the first ones of each span, up to a cap, from which the rest is estimated.
-- Event: none.
-- Parameters: lows bigint[], highs bigint[]: of a span the lowest id, and the lowest of what comes after; first, last bigint: the
--   lowest and the highest of them, which the planner can see; slices int[]: to which slice each span belongs; cap int: of a span.
-- Returns rows for each slice, for each consumer, for each of both, and one for all: slice (NULL: all), consumer_id (NULL: all),
--   delivered, dead, retries (float8), is_estimate (some span had more than the cap).
-- Locks: none. Index: primary keys of the archive's partitions; for each span no more rows are read than the cap and one.
WITH span AS MATERIALIZED (
    SELECT *
    FROM unnest(%(lows)s::bigint[], %(highs)s::bigint[], %(slices)s::int[]) WITH ORDINALITY AS span (low, high, slice, number)
),
counted AS MATERIALIZED (
    SELECT span.number, span.slice, archived.*
    FROM span
    CROSS JOIN LATERAL (
        SELECT
            consumer_id,
            count(*) FILTER (WHERE state = 'DELIVERED') AS delivered,
            count(*) FILTER (WHERE state = 'DEAD') AS dead,
            sum(retry_count) AS retries,
            count(*) AS rows,
            min(id) AS first_id,
            max(id) AS last_id
        FROM (
            SELECT id, consumer_id, state, retry_count
            FROM pulljobs_archived_job
            WHERE id >= span.low
                AND id < span.high
                AND id >= %(first)s::bigint
                AND id < %(last)s::bigint
            ORDER BY id
            LIMIT %(cap)s::int
        ) AS archived
        GROUP BY consumer_id
    ) AS archived
),
reached AS MATERIALIZED (
    SELECT number, sum(rows) >= %(cap)s::int AS is_capped, min(first_id) AS first_id, max(last_id) AS last_id
    FROM counted
    GROUP BY number
),
weight AS MATERIALIZED (
    -- Estimate: settlements came as fast up to the last one of the span as up to the last one that was read.
    SELECT
        reached.number,
        coalesce((ending.id - reached.first_id)::float8 / nullif(reached.last_id - reached.first_id, 0), 1) AS times
    FROM reached
    JOIN span USING (number)
    LEFT JOIN LATERAL (
        SELECT id
        FROM pulljobs_archived_job
        WHERE reached.is_capped
            AND id >= reached.last_id
            AND id < span.high
            AND id >= %(first)s::bigint
            AND id < %(last)s::bigint
        ORDER BY id DESC
        LIMIT 1
    ) AS ending ON true
),
total AS (
    SELECT
        counted.slice,
        counted.consumer_id,
        sum(times * delivered)::float8 AS delivered,
        sum(times * dead)::float8 AS dead,
        sum(times * retries)::float8 AS retries,
        bool_or(times > 1) AS is_estimate
    FROM counted
    JOIN weight USING (number)
    GROUP BY GROUPING SETS ((counted.slice), (counted.consumer_id), (counted.slice, counted.consumer_id), ())
)
SELECT total.*
FROM total
WHERE is_estimate IS NOT NULL
