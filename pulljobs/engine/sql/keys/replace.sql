-- Give a queued job another message: it keeps its id and, within its priority, its place, and its counts start again.
-- Event: publish, where the key is full. Under the lock of lock_queued.sql.
-- Parameters: job_ids bigint[], message_id bigint, priority smallint, cost int, delay interval, available_at timestamptz (NULL: not given).
-- Returns: job_id, consumer_id.
-- Locks: held already. Index: primary key.
WITH transaction AS MATERIALIZED (
    -- The clock is read after the transaction has its id: claims rely on that order (low_water_marks.py).
    SELECT pg_current_xact_id() AS xid
),
clock AS MATERIALIZED (
    SELECT
        clock_timestamp() AS now,
        greatest(
            clock_timestamp(),
            coalesce(%(available_at)s::timestamptz, clock_timestamp()) + coalesce(%(delay)s::interval, '0')
        ) AS due
    FROM transaction
    WHERE xid IS NOT NULL
)
UPDATE pulljobs_job AS job
SET
    message_id = %(message_id)s::bigint,
    priority = %(priority)s::smallint,
    cost = %(cost)s::int,
    -- One that is blocked may be met by a claim again: its key may have been freed since it was locked.
    -- Nor keeps it its place in another priority: claims of that may have gone on from there (low_water_marks.py).
    available_at = CASE
        WHEN clock.due <= clock.now AND job.available_at <= clock.now AND job.priority = %(priority)s::smallint
            THEN job.available_at
        ELSE clock.due
    END,
    first_claimed_at = NULL,
    retry_count = 0,
    deliveries = 0,
    error = NULL,
    suspect = false
FROM clock
WHERE job.id = ANY(%(job_ids)s::bigint[]) AND job.state = 'QUEUED'
RETURNING job.id AS job_id, job.consumer_id
