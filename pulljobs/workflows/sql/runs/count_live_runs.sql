-- Count the runs of consumers that have begun and are not delivered, by version and by what they wait for.
-- Event: none.
-- Parameters: consumer_ids bigint[], cap int (live jobs of one priority, and dead jobs, that are read of each consumer).
-- Returns: consumer_id, version, kind (dead, in_flight, ready, retry, version, signal, children or sleep), runs, oldest_id,
--   overdue_seconds (since the run that is ready longest was due; NULL: none is ready).
-- Locks: none. Index: pulljobs_job_claim, pulljobs_job_dead, run primary key.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
${priority_levels},
job AS MATERIALIZED (
    SELECT job.*
    FROM level
    CROSS JOIN LATERAL (
        SELECT id, consumer_id, state, available_at, retry_count
        FROM pulljobs_job
        WHERE consumer_id = level.consumer_id AND priority = level.priority AND available_at <= 'infinity'
        ORDER BY available_at, id
        LIMIT %(cap)s::int
    ) AS job
    UNION ALL
    SELECT job.*
    FROM consumer
    CROSS JOIN LATERAL (
        SELECT id, consumer_id, state, available_at, retry_count
        FROM pulljobs_job
        WHERE consumer_id = consumer.id AND reason IS NOT NULL
        ORDER BY id
        LIMIT %(cap)s::int
    ) AS job
),
found AS MATERIALIZED (
    SELECT
        job.id,
        job.consumer_id,
        run.version,
        CASE
            WHEN job.state = 'DEAD' THEN 'dead'
            WHEN job.state = 'INFLIGHT' THEN 'in_flight'
            WHEN job.available_at <= clock.now THEN 'ready'
            WHEN job.retry_count > 0 THEN 'retry'
            WHEN run.waiting_consumer IS NOT NULL THEN 'version'
            WHEN run.waiting_for IS NOT NULL THEN 'signal'
            WHEN run.waiting_batch IS NOT NULL THEN 'children'
            ELSE 'sleep'
        END AS kind,
        date_part('epoch', clock.now - job.available_at) AS seconds
    FROM job
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        -- One by one: a join might scan the table.
        SELECT version, waiting_for, waiting_batch, waiting_consumer
        FROM pulljobs_run
        WHERE id = job.id
        LIMIT 1
    ) AS run
)
SELECT
    consumer_id,
    version,
    kind,
    count(*) AS runs,
    min(id) AS oldest_id,
    max(seconds) FILTER (WHERE kind = 'ready') AS overdue_seconds
FROM found
GROUP BY consumer_id, version, kind
ORDER BY consumer_id, version, kind
