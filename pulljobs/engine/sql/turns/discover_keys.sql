-- Give turns to keys with waiting jobs that have none, the first keys by name. It claims nothing.
-- Event: none; after discover.sql, if that has not met all waiting jobs; not in the transaction of a claim.
-- Parameters: consumer_id bigint, most int (keys to look at).
-- Returns: nothing.
-- Locks: rows of keys that have no turn yet, in order of the key, waiting for claims and settlements of these keys. Index:
--   pulljobs_job_turn, flow key.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
consumer AS MATERIALIZED (
    SELECT fair_by_key
    FROM pulljobs_consumer
    WHERE id = %(consumer_id)s::bigint AND takes_turns
),
listed (key, number) AS (
    SELECT (
        SELECT turn_key
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint AND turn_key IS NOT NULL AND reason IS NULL
        ORDER BY turn_key
        LIMIT 1
    ), 1
    UNION ALL
    SELECT (
        SELECT turn_key
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint AND turn_key > listed.key AND reason IS NULL
        ORDER BY turn_key
        LIMIT 1
    ), number + 1
    FROM listed
    WHERE key IS NOT NULL AND number < %(most)s::int
),
wanted AS MATERIALIZED (
    SELECT listed.key, CASE WHEN consumer.fair_by_key THEN 0 ELSE job.priority END AS turn_rank
    FROM consumer
    CROSS JOIN listed
    LEFT JOIN LATERAL (
        SELECT turn_at IS NULL AND NOT is_full AS is_without_turn
        FROM pulljobs_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint AND key = listed.key
        LIMIT 1
    ) AS row ON true
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND turn_key = listed.key
            -- Again, as a range: where it knows one key only, the planner would walk through the jobs of all keys.
            AND turn_key BETWEEN listed.key AND listed.key
            AND available_at <= (SELECT now FROM clock)
            AND reason IS NULL
            AND state = 'QUEUED'
        ORDER BY priority DESC, available_at, id
        LIMIT 1
    ) AS job
    WHERE listed.key IS NOT NULL AND row.is_without_turn IS NOT FALSE
),
transaction AS MATERIALIZED (
    SELECT pg_current_xact_id() AS xid
    WHERE EXISTS (SELECT FROM wanted)
),
${moment_after_id}
INSERT INTO pulljobs_flow_key AS row (consumer_id, key, turn_at, turn_rank)
SELECT %(consumer_id)s::bigint, wanted.key, moment.now, wanted.turn_rank
FROM wanted
CROSS JOIN moment
ORDER BY wanted.key
ON CONFLICT (consumer_id, key) DO UPDATE
SET
    turn_at = ${turn_of_known_key},
    turn_rank = greatest(row.turn_rank, excluded.turn_rank),
    -- The waiting job may be below the mark.
    mark_at = NULL,
    writer = pg_current_xact_id()
