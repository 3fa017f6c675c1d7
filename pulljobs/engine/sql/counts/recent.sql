-- Count the settlements of spans of time: the first ones of each span, up to a cap, from which the rest is estimated.
-- Event: none.
-- Parameters: lows bigint[], highs bigint[]: of a span the lowest id, and the lowest of what comes after; first, last bigint: the
--   lowest and the highest of them, which the planner can see; slices int[]: to which slice each span belongs; cap int: of a span;
--   timed int: of how many of a span the times are looked at.
-- Returns rows for each slice, for each consumer, for each of both, and one for all: slice (NULL: all), consumer_id (NULL: all),
--   delivered, dead, retries (float8), is_estimate (some span had more than the cap), waits, runs (float8[]: seconds at p50, p95,
--   p99; NULL: none known). Waits are those of jobs that were settled by their first delivery and had not been DEAD before; runs
--   are not those of jobs that were killed, purged or pushed out: as in the rollups.
-- Locks: none. Index: primary keys of the archive's partitions, of those since a job was made that of job_id; for each span no more
--   rows are read than the cap and those timed.
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
    -- They came as fast until the last one of the span as until the last one that was read.
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
timed AS MATERIALIZED (
    SELECT span.slice, archived.*
    FROM span
    CROSS JOIN LATERAL (
        SELECT
            consumer_id,
            CASE
                WHEN deliveries = 1
                    AND retry_count = 0
                    AND NOT EXISTS (
                        -- A redriven job counts its deliveries from zero. No death is older than its job, so that
                        -- earlier days are not read; the sum prevents an index scan by id, which is far too long.
                        SELECT
                        FROM pulljobs_archived_job AS death
                        WHERE death.job_id = settled.job_id
                            AND death.id >= settled.job_id
                            AND death.id + 0 < settled.id
                            AND death.state = 'DEAD'
                    )
                    THEN date_part('epoch', claimed_at - created_at)
            END AS wait,
            CASE
                -- The holder did not kill it.
                WHEN reason IN ('killed', 'purged', 'key_overflow') THEN NULL
                ELSE date_part('epoch', settled_at - claimed_at)
            END AS run
        FROM pulljobs_archived_job AS settled
        WHERE id >= span.low
            AND id < span.high
            AND id >= %(first)s::bigint
            AND id < %(last)s::bigint
        ORDER BY id
        LIMIT %(timed)s::int
    ) AS archived
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
),
times AS (
    SELECT
        slice,
        consumer_id,
        percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY wait) AS waits,
        percentile_cont(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY run) AS runs
    FROM timed
    GROUP BY GROUPING SETS ((slice), (consumer_id), (slice, consumer_id), ())
)
SELECT total.*, times.waits, times.runs
FROM total
LEFT JOIN times
    ON coalesce(times.slice, -1) = coalesce(total.slice, -1)
    AND coalesce(times.consumer_id, -1) = coalesce(total.consumer_id, -1)
WHERE total.is_estimate IS NOT NULL
