-- Give turns to the keys of jobs that became claimable above the low-water marks. It claims nothing.
-- Event: none; before claim_turns.sql, and not in its transaction, because claims of other processes wait for new rows.
-- Parameters: consumer_id bigint, wanted int (jobs to look at), until timestamptz, and those of fragments/priority_walk.sql.
-- Returns one row: started_at, snapshot, xid (NULL: no job was seen), jobs int8 (seen), turns int8 (rows of keys that were written),
--   is_held_up boolean (a job is locked whose key is not known),
--   how far each priority was seen without leaving a job behind (walked, reached_ats, reached_ids; NULL: not at all), next_due_seconds
--   float8, when fewer than wanted.
-- Locks: rows of keys that have no turn yet, or one of a lower rank, or a mark above a job, in order of the key, waiting for claims and settlements of these keys; and jobs that were
--   published before the consumer's claims went by key, which get their key now, skipping locked ones. Index: pulljobs_job_claim, flow key.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
consumer AS MATERIALIZED (
    SELECT fair_by_key
    FROM pulljobs_consumer
    WHERE id = %(consumer_id)s::bigint AND takes_turns
),
${priority_walk},
seen AS MATERIALIZED (
    SELECT job.*
    FROM consumer
    CROSS JOIN walk
    CROSS JOIN LATERAL (
        SELECT id, message_id, turn_key, priority, available_at
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = walk.priority
            AND (available_at, id) > (walk.mark_at, walk.mark_id)
            AND available_at <= least(%(until)s::timestamptz, (SELECT now FROM clock))
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT %(wanted)s::int
    ) AS job
    LIMIT %(wanted)s::int
),
unkeyed AS MATERIALIZED (
    SELECT job.id, coalesce(message.key, '') AS key
    FROM seen
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulljobs_job
        WHERE id = seen.id AND state = 'QUEUED' AND turn_key IS NULL
        FOR UPDATE SKIP LOCKED
    ) AS job
    LEFT JOIN LATERAL (
        SELECT key
        FROM pulljobs_message
        WHERE id = seen.message_id
        LIMIT 1
    ) AS message ON true
    WHERE seen.turn_key IS NULL
),
keyed AS (
    UPDATE pulljobs_job AS job
    SET turn_key = unkeyed.key
    FROM unkeyed
    WHERE job.id = unkeyed.id AND job.id = ANY(ARRAY(SELECT id FROM unkeyed))
),
first AS MATERIALIZED (
    -- The first job of each key and priority.
    SELECT DISTINCT ON (key, priority) key, priority, available_at, id
    FROM (
        SELECT coalesce(seen.turn_key, unkeyed.key) AS key, seen.priority, seen.available_at, seen.id
        FROM seen
        LEFT JOIN unkeyed ON unkeyed.id = seen.id
    ) AS job
    WHERE key IS NOT NULL
    ORDER BY key, priority DESC, available_at, id
),
transaction AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid
    WHERE EXISTS (SELECT FROM seen)
),
${moment_after_id},
wanted AS MATERIALIZED (
    SELECT
        first.key,
        CASE WHEN consumer.fair_by_key THEN 0 ELSE max(first.priority) END AS turn_rank,
        bool_or(row.is_new) AS is_new,
        bool_or(row.is_without_turn) AS is_without_turn,
        min(row.turn_rank) AS known_rank,
        -- A job below the mark of its key was committed after the claim that set the mark.
        bool_or(first.priority = row.mark_priority AND (first.available_at, first.id) <= (row.mark_at, row.mark_id)) AS is_below,
        min(row.mark_priority) AS mark_priority,
        min(row.mark_at) AS mark_at,
        min(row.mark_id) AS mark_id
    FROM consumer
    CROSS JOIN first
    LEFT JOIN LATERAL (
        SELECT false AS is_new, turn_at IS NULL AND NOT is_full AS is_without_turn, turn_rank, mark_priority, mark_at, mark_id
        FROM pulljobs_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint AND key = first.key
        LIMIT 1
    ) AS row ON true
    GROUP BY first.key, consumer.fair_by_key
),
made AS (
    INSERT INTO pulljobs_flow_key AS row (consumer_id, key, turn_at, turn_rank, mark_priority, mark_at, mark_id)
    SELECT
        %(consumer_id)s::bigint,
        wanted.key,
        moment.now,
        wanted.turn_rank,
        coalesce(wanted.mark_priority, 0),
        CASE WHEN NOT wanted.is_below THEN wanted.mark_at END,
        coalesce(wanted.mark_id, 0)
    FROM wanted
    CROSS JOIN moment
    WHERE wanted.is_new IS NULL OR wanted.is_without_turn OR wanted.is_below OR wanted.turn_rank > wanted.known_rank
    ORDER BY wanted.key
    ON CONFLICT (consumer_id, key) DO UPDATE
    SET
        turn_at = ${turn_of_known_key},
        turn_rank = CASE
            WHEN row.turn_at IS NULL AND NOT row.is_full THEN excluded.turn_rank
            ELSE greatest(row.turn_rank, excluded.turn_rank)
        END,
        -- NULL, where a claim has moved the mark meanwhile: no mark is above a job that waits.
        mark_at = CASE
            WHEN row.mark_priority = excluded.mark_priority AND row.mark_at <= excluded.mark_at THEN row.mark_at
        END,
        writer = pg_current_xact_id()
    RETURNING key
),
behind AS MATERIALIZED (
    -- The first job of each priority whose key is not known, because it is locked.
    SELECT DISTINCT ON (priority) priority, available_at, id
    FROM seen
    WHERE turn_key IS NULL AND id NOT IN (SELECT id FROM unkeyed)
    ORDER BY priority, available_at, id
),
last AS MATERIALIZED (
    SELECT DISTINCT ON (seen.priority) seen.priority, seen.available_at, seen.id
    FROM seen
    LEFT JOIN behind ON behind.priority = seen.priority
    WHERE behind.id IS NULL OR (seen.available_at, seen.id) < (behind.available_at, behind.id)
    ORDER BY seen.priority, seen.available_at DESC, seen.id DESC
),
reached AS MATERIALIZED (
    SELECT walk.priority::int, last.available_at, last.id
    FROM walk
    LEFT JOIN last ON last.priority = walk.priority
)
SELECT
    now() AS started_at,
    pg_current_snapshot()::text AS snapshot,
    (SELECT xid FROM transaction)::text::bigint AS xid,
    (SELECT count(*) FROM seen) AS jobs,
    (SELECT count(*) FROM made) AS turns,
    EXISTS (SELECT FROM behind) AS is_held_up,
    ARRAY(SELECT priority FROM reached ORDER BY priority DESC) AS walked,
    ARRAY(SELECT available_at FROM reached ORDER BY priority DESC) AS reached_ats,
    ARRAY(SELECT id FROM reached ORDER BY priority DESC) AS reached_ids,
    CASE
        WHEN (SELECT count(*) FROM seen) < %(wanted)s::int THEN ${seconds_to_next_due}
    END AS next_due_seconds
