-- Count the jobs of a consumer by what they wait for, in one snapshot.
-- Event: none.
-- Parameters: consumer_id bigint, cap int: no count goes above it.
-- Returns one row: ready, delayed, in_flight, dead (int8), oldest_ready_seconds (float8, NULL: nothing ready).
-- Locks: none. Index: pulljobs_job_claim, pulljobs_job_dead; at most cap rows are read for a count.
WITH live AS MATERIALIZED (
    SELECT state, available_at
    FROM pulljobs_job
    WHERE consumer_id = %(consumer_id)s::bigint AND state <> 'DEAD'
    LIMIT %(cap)s::int * 3
),
counted AS (
    SELECT
        count(*) FILTER (WHERE state = 'QUEUED' AND available_at <= clock_timestamp()) AS ready,
        count(*) FILTER (WHERE state = 'QUEUED' AND available_at > clock_timestamp()) AS delayed,
        count(*) FILTER (WHERE state = 'INFLIGHT') AS in_flight,
        extract(epoch FROM clock_timestamp() - min(available_at) FILTER (
            WHERE state = 'QUEUED' AND available_at <= clock_timestamp()
        ))::float8 AS oldest_ready_seconds
    FROM live
),
dead AS (
    SELECT count(*) AS dead
    FROM (
        SELECT
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint AND reason IS NOT NULL
        LIMIT %(cap)s::int
    ) AS buried
)
SELECT
    least(ready, %(cap)s::int) AS ready,
    least(delayed, %(cap)s::int) AS delayed,
    least(in_flight, %(cap)s::int) AS in_flight,
    dead,
    oldest_ready_seconds
FROM counted, dead
