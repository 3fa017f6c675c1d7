-- List the jobs of a consumer that wait and are due: highest priority first, within it the longest available first.
-- Event: none.
-- Parameters: consumer_id bigint, wanted int; the last job of the page before (all NULL: the first page):
--   after_priority int, after_at timestamptz, after_id bigint.
-- Returns: id, message_id, priority, available_at, incremental_timeout, in that order.
-- Locks: none. Index: pulljobs_job_claim, entered once a priority, so that neither what waits behind the page nor what is
--   due later is read; what is in flight at the head is passed over.
WITH RECURSIVE walk (priority) AS (
    (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint AND priority <= coalesce(%(after_priority)s::int, 32767)
        ORDER BY priority DESC
        LIMIT 1
    )
    UNION ALL
    SELECT lower.priority
    FROM walk
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint AND priority < walk.priority
        ORDER BY priority DESC
        LIMIT 1
    ) AS lower
)
SELECT due.id, due.message_id, due.priority, due.available_at, due.incremental_timeout
FROM walk
CROSS JOIN LATERAL (
    SELECT id, message_id, priority, available_at, incremental_timeout
    FROM pulljobs_job
    WHERE consumer_id = %(consumer_id)s::bigint
        AND priority = walk.priority
        AND (available_at, id) > (
            CASE walk.priority WHEN %(after_priority)s::int THEN %(after_at)s::timestamptz ELSE '-infinity' END,
            CASE walk.priority WHEN %(after_priority)s::int THEN %(after_id)s::bigint ELSE 0 END
        )
        AND available_at <= statement_timestamp()
        AND state = 'QUEUED'
    ORDER BY available_at, id
    LIMIT %(wanted)s::int
) AS due
LIMIT %(wanted)s::int
