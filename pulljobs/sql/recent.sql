-- Look at the settlements of slices of time: of each slice at its first ones, up to a cap.
-- Event: none.
-- Parameters: lows bigint[], highs bigint[]: of a slice the lowest id, and the lowest of what comes after; first, last bigint:
--   the lowest and the highest of them, which the planner can see; cap int.
-- Returns rows for each slice, for each consumer, for each of both, and one for all: slice (from 1, NULL: all), consumer_id (NULL:
--   all), delivered, dead, retries (int8), last_id (bigint), waits, runs (float8[]: seconds at p50, p95, p99; NULL: none known).
--   A wait is told of what was settled by its first delivery.
-- Locks: none. Index: primary keys of the archive's partitions; not more rows are read than cap times the slices.
WITH slice AS MATERIALIZED (
    SELECT *
    FROM unnest(%(lows)s::bigint[], %(highs)s::bigint[]) WITH ORDINALITY AS slice (low, high, number)
),
settled AS MATERIALIZED (
    SELECT slice.number, archived.*
    FROM slice
    CROSS JOIN LATERAL (
        SELECT
            id, consumer_id, state, retry_count,
            CASE WHEN deliveries = 1 THEN date_part('epoch', claimed_at - created_at) END AS wait,
            date_part('epoch', settled_at - claimed_at) AS run
        FROM pulljobs_archived_job
        WHERE id >= slice.low
            AND id < slice.high
            AND id >= %(first)s::bigint
            AND id < %(last)s::bigint
        ORDER BY id
        LIMIT %(cap)s::int
    ) AS archived
)
SELECT
    number,
    consumer_id,
    count(*) FILTER (WHERE state = 'DELIVERED') AS delivered,
    count(*) FILTER (WHERE state = 'DEAD') AS dead,
    coalesce(sum(retry_count), 0)::int8 AS retries,
    max(id) AS last_id,
    percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY wait) AS waits,
    percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY run) AS runs
FROM settled
GROUP BY GROUPING SETS ((number), (consumer_id), (number, consumer_id), ())
