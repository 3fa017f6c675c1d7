-- Claim jobs of a consumer under one new lease: highest priority first, within it the longest available first.
-- Event: claim. Nothing is claimed for a paused or deleted consumer; jobs of a push consumer are claimed only via `push`.
-- Parameters: consumer_id bigint, wanted int, until timestamptz (end of a claim below the low-water marks, else NULL), node_id uuid, via text,
--   lease_duration interval (NULL: the consumer's), max_lease interval, request_id text (NULL: none), guarded boolean (the caller has checked
--   max_in_flight and the rate); those of fragments/priority_walk.sql.
-- Returns one row: started_at, snapshot, xid, lease_token, leased_until, the jobs as arrays in the order claimed (job_ids,
--   message_ids, job_priorities, retry_counts, deliveries, suspects), and how far each walked priority was taken without
--   leaving one behind (walked, reached_ats, reached_ids; NULL: not at all); passed boolean: one was left behind;
--   next_due_seconds float8, when fewer than wanted; refusal text: deleted, paused or throttled (then what is due next is the
--   end of that), unguarded, repeated (there is a lease of that request_id), else NULL.
-- Locks: the jobs taken, skipping jobs that other transactions have locked; waits for a claim under the same request_id.
--   Index: pulljobs_job_claim; the update is HOT.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
${open_consumer},
${priority_walk},
pick AS MATERIALIZED (
    SELECT job.*
    FROM consumer
    CROSS JOIN walk
    CROSS JOIN LATERAL (
        SELECT id, message_id, priority, available_at, retry_count, deliveries, suspect
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = walk.priority
            AND (available_at, id) > (walk.mark_at, walk.mark_id)
            AND available_at <= least(%(until)s::timestamptz, (SELECT now FROM clock))
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT %(wanted)s::int
        FOR UPDATE SKIP LOCKED
    ) AS job
    LIMIT %(wanted)s::int
),
taken AS MATERIALIZED (
    SELECT
        count(*) AS jobs,
        coalesce(array_agg(id), '{}') AS ids,
        array_agg(message_id) AS message_ids,
        array_agg(priority) AS priorities,
        array_agg(retry_count) AS retry_counts,
        array_agg(deliveries + 1) AS deliveries,
        array_agg(suspect) AS suspects
    FROM pick
),
${lease_of_taken},
last AS MATERIALIZED (
    SELECT walk.priority, walk.mark_at, walk.mark_id, edge.available_at, edge.id
    FROM walk
    LEFT JOIN LATERAL (
        SELECT available_at, id
        FROM pick
        WHERE priority = walk.priority
        ORDER BY available_at DESC, id DESC
        LIMIT 1
    ) AS edge ON true
),
passed AS MATERIALIZED (
    -- The first job that the walk saw QUEUED and could not lock: the transaction that holds it may still release it.
    -- Jobs after the last taken one do not count, because the next claim starts there. But a claim below the low-water
    -- marks has no next one, so there they count. (There is one upper bound, because with a second one on the same column
    -- PostgreSQL would not stop the scan there. The ids are an array, because a generic plan expects few elements and
    -- uses a hash.)
    SELECT last.priority, job.available_at, job.id
    FROM last
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT available_at, id
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = last.priority
            AND (available_at, id) > (last.mark_at, last.mark_id)
            AND (available_at, id) < (
                CASE WHEN %(until)s::timestamptz IS NULL THEN last.available_at ELSE least(%(until)s, clock.now) END,
                CASE WHEN %(until)s::timestamptz IS NULL THEN last.id ELSE 9223372036854775807 END
            )
            AND state = 'QUEUED'
            AND id NOT IN (SELECT unnest(ids) FROM taken)
        ORDER BY available_at, id
        LIMIT 1
    ) AS job
),
reached AS MATERIALIZED (
    SELECT
        last.priority,
        -- Before the passed job, the claim has left no job.
        coalesce(passed.available_at, last.available_at) AS available_at,
        coalesce(passed.id - 1, last.id) AS id
    FROM last
    LEFT JOIN passed USING (priority)
)
SELECT
    now() AS started_at,
    pg_current_snapshot()::text AS snapshot,
    lease.xid::text::bigint AS xid,
    lease.lease_token,
    lease.leased_until,
    taken.ids AS job_ids,
    coalesce(taken.message_ids, '{}') AS message_ids,
    coalesce(taken.priorities, '{}') AS job_priorities,
    coalesce(taken.retry_counts, '{}') AS retry_counts,
    coalesce(taken.deliveries, '{}') AS deliveries,
    coalesce(taken.suspects, '{}') AS suspects,
    ARRAY(SELECT priority::int FROM reached ORDER BY priority DESC) AS walked,
    ARRAY(SELECT available_at FROM reached ORDER BY priority DESC) AS reached_ats,
    ARRAY(SELECT id FROM reached ORDER BY priority DESC) AS reached_ids,
    EXISTS (SELECT FROM passed) AS passed,
    CASE
        WHEN asked.refusal IN ('paused', 'throttled') THEN extract(epoch FROM asked.closed_until - clock_timestamp())::float8
        WHEN taken.jobs < %(wanted)s::int THEN ${seconds_to_next_due}
    END AS next_due_seconds,
    CASE
        WHEN asked.id IS NULL THEN 'deleted'
        WHEN lease.lease_token IS NULL AND taken.jobs > 0 THEN 'repeated'
        ELSE asked.refusal
    END AS refusal
FROM taken
LEFT JOIN asked ON true
LEFT JOIN lease ON true
