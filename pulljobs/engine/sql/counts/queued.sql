-- List the jobs of a consumer that are ready: highest priority first, within it the longest available first.
-- Event: none.
-- Parameters: consumer_id bigint, wanted int; those of fragments/priority_walk.sql.
-- Returns one row: server_started_at, started_at, snapshot, next_after_3 (the next transaction id, less 3), the jobs as
--   arrays in their order (ids, message_ids, priorities, available_ats, timeouts), and how far each walked
--   priority holds none that waits (walked, reached_ats, reached_ids).
-- Locks: none. Index: pulljobs_job_claim, entered once a priority, so that neither jobs after the page nor jobs that are
--   due later are read. Jobs in flight above the low-water marks are skipped.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
${priority_walk},
due AS MATERIALIZED (
    SELECT job.*
    FROM walk
    CROSS JOIN LATERAL (
        SELECT id, message_id, priority, available_at, incremental_timeout
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = walk.priority
            AND (available_at, id) > (walk.mark_at, walk.mark_id)
            AND available_at <= (SELECT now FROM clock)
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT %(wanted)s::int
    ) AS job
    LIMIT %(wanted)s::int
),
reached AS MATERIALIZED (
    -- Up to the first QUEUED job, due or not.
    SELECT
        walk.priority,
        coalesce(first.available_at, clock.now) AS available_at,
        coalesce(first.id - 1, 0) AS id
    FROM walk
    CROSS JOIN clock
    LEFT JOIN LATERAL (
        SELECT available_at, id
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = walk.priority
            AND (available_at, id) > (walk.mark_at, walk.mark_id)
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT 1
    ) AS first ON true
)
SELECT
    pg_postmaster_start_time() AS server_started_at,
    now() AS started_at,
    pg_current_snapshot()::text AS snapshot,
    -- Number of ids from 3 to the next that the server assigns. (The snapshot ends at the last transaction that ended.)
    age('3'::xid) AS next_after_3,
    ARRAY(SELECT id FROM due) AS ids,
    ARRAY(SELECT message_id FROM due) AS message_ids,
    ARRAY(SELECT priority FROM due) AS priorities,
    ARRAY(SELECT available_at FROM due) AS available_ats,
    ARRAY(SELECT incremental_timeout FROM due) AS timeouts,
    ARRAY(SELECT priority::int FROM reached ORDER BY priority DESC) AS walked,
    ARRAY(SELECT available_at FROM reached ORDER BY priority DESC) AS reached_ats,
    ARRAY(SELECT id FROM reached ORDER BY priority DESC) AS reached_ids
