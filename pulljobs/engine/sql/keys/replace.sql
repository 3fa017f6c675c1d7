-- Give a queued job another message: it keeps its id, and if it is due now in the same priority, its place. Its counts start again.
-- Event: publish, where the key is full. Under the lock of lock_queued.sql.
-- Parameters: job_ids bigint[], message_id bigint, priority smallint, cost int, delay interval, available_at timestamptz (NULL: not given).
-- Returns: job_id, consumer_id.
-- Locks: held already. Index: primary key.
WITH ${clock_after_id},
planned AS MATERIALIZED (
    SELECT
        now,
        greatest(
            now,
            -- In seconds: a day of an interval may have 23 or 25 hours.
            coalesce(%(available_at)s::timestamptz, now) + coalesce(make_interval(secs => date_part('epoch', %(delay)s::interval)), '0')
        ) AS due
    FROM clock
)
UPDATE pulljobs_job AS job
SET
    message_id = %(message_id)s::bigint,
    priority = %(priority)s::smallint,
    cost = %(cost)s::int,
    -- A claim may find a blocked job again, because its key may have been freed since the job was locked.
    -- A job with another priority does not keep its place: the low-water mark of that priority may be above it (low_water_marks.py).
    available_at = CASE
        WHEN planned.due <= planned.now AND job.available_at <= planned.now AND job.priority = %(priority)s::smallint
            THEN job.available_at
        ELSE planned.due
    END,
    first_claimed_at = NULL,
    retry_count = 0,
    deliveries = 0,
    error = NULL,
    suspect = false
FROM planned
WHERE job.id = ANY(%(job_ids)s::bigint[]) AND job.state = 'QUEUED'
RETURNING job.id AS job_id, job.consumer_id
