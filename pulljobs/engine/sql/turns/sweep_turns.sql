-- Give turns to keys that lost theirs in a crash, or that wait for a token longer than the present rate asks for, and delete rows of keys
--   without jobs. Make rows claimable that came from another cluster, as by a dump.
-- Event: none; for the sweep.
-- Parameters: after_consumer_id bigint, after_key text (the key before the first to look at), looked_at int (keys), wanted int (rows to change).
-- Returns one row: changed int8 (rows), consumer_ids bigint[] (whose keys got turns or became claimable), reached_consumer_id bigint, reached_key text (the
--   last key; NULL: the last of all).
-- Locks: the rows, skipping those that other transactions have locked. Index: flow key, pulljobs_job_turn, job primary key.
WITH ${clock_after_id},
looked AS MATERIALIZED (
    SELECT
        consumer_id,
        key,
        ctid AS place,
        -- A snapshot shows only rows of this cluster whose transaction is below its end, or its own.
        writer >= pg_snapshot_xmax(pg_current_snapshot()) AND writer <> (SELECT xid FROM transaction) AS is_foreign
    FROM pulljobs_flow_key
    WHERE (consumer_id, key) > (%(after_consumer_id)s::bigint, %(after_key)s::text)
    ORDER BY consumer_id, key
    LIMIT %(looked_at)s::int
),
reached AS MATERIALIZED (
    SELECT consumer_id, key
    FROM looked
    ORDER BY consumer_id DESC, key DESC
    LIMIT 1
),
found AS MATERIALIZED (
    SELECT row.ctid AS place, row.consumer_id, fact.gets_turn, fact.is_idle, row.turn_at IS NULL AS is_without_turn
    FROM pulljobs_flow_key AS row
    CROSS JOIN clock
    LEFT JOIN LATERAL (
        SELECT takes_turns, max_in_flight_per_key AS slots, key_rate_per_second AS per_second, rate_burst
        FROM pulljobs_consumer
        WHERE id = row.consumer_id
        LIMIT 1
    ) AS consumer ON true
    CROSS JOIN LATERAL (
        SELECT
            consumer.takes_turns IS TRUE AND CASE
                -- A second: other reasons put a turn off by less.
                WHEN row.turn_at > clock.now THEN row.turn_at > interval '1 s' + greatest(
                    clock.now,
                    row.throttled_until,
                    row.filled_at + make_interval(secs => greatest(0, (
                        SELECT least(coalesce(cost, 1), coalesce(consumer.rate_burst, greatest(consumer.per_second, 1)))
                        FROM pulljobs_job
                        WHERE consumer_id = row.consumer_id
                            AND turn_key = row.key
                            AND turn_key BETWEEN row.key AND row.key
                            AND available_at <= clock.now
                            AND reason IS NULL
                            AND state = 'QUEUED'
                        ORDER BY priority DESC, available_at, id
                        LIMIT 1
                    ) - row.tokens) / consumer.per_second)
                )
                WHEN row.is_full THEN (
                    SELECT count(*)
                    ${live_holders}
                ) < coalesce(consumer.slots, 2147483647)
                ELSE EXISTS (
                    SELECT
                    FROM pulljobs_job
                    WHERE consumer_id = row.consumer_id
                        AND turn_key = row.key
                        AND available_at <= clock.now
                        AND reason IS NULL
                        AND state = 'QUEUED'
                    -- One by one, here and below: without OFFSET the planner may read all jobs into a hash.
                    OFFSET 0
                )
            END AS gets_turn,
            row.weight = 1 AND (
                consumer.takes_turns IS NOT TRUE
                OR (
                    (row.throttled_until > clock.now) IS NOT TRUE
                    -- Else a key without jobs would forget the tokens that it has spent.
                    AND (
                        row.tokens + consumer.per_second * date_part('epoch', clock.now - row.filled_at)
                        < coalesce(consumer.rate_burst, greatest(consumer.per_second, 1))
                    ) IS NOT TRUE
                    AND NOT EXISTS (
                        SELECT
                        FROM pulljobs_job
                        WHERE consumer_id = row.consumer_id AND turn_key = row.key AND reason IS NULL
                        OFFSET 0
                    )
                )
            ) AS is_idle
    ) AS fact
    WHERE (row.consumer_id, row.key) > (%(after_consumer_id)s::bigint, %(after_key)s::text)
        AND (row.consumer_id, row.key) <= (SELECT consumer_id, key FROM reached)
        AND (fact.gets_turn OR fact.is_idle AND (row.turn_at IS NULL OR consumer.takes_turns IS NOT TRUE))
        AND (row.turn_at IS NULL OR row.turn_at > clock.now OR consumer.takes_turns IS NOT TRUE)
        -- The version that is locked is the one that was looked at: see claim_turns.sql.
        AND (
            pg_visible_in_snapshot(row.writer, (SELECT pg_current_snapshot()))
            OR row.writer = (SELECT xid FROM transaction)
        )
    LIMIT %(wanted)s::int
    FOR NO KEY UPDATE OF row SKIP LOCKED
),
given AS (
    UPDATE pulljobs_flow_key AS row
    SET
        turn_at = greatest(clock.now, row.throttled_until),
        is_full = false,
        mark_at = CASE WHEN NOT found.is_without_turn THEN row.mark_at END,
        writer = (SELECT xid FROM transaction)
    FROM found, clock
    WHERE row.ctid = found.place AND found.gets_turn AND row.ctid = ANY(ARRAY(SELECT place FROM found))
),
adopted AS (
    UPDATE pulljobs_flow_key
    SET writer = (SELECT xid FROM transaction)
    WHERE ctid = ANY(ARRAY(
        SELECT row.ctid
        FROM pulljobs_flow_key AS row
        WHERE ctid = ANY(ARRAY(SELECT place FROM looked WHERE is_foreign))
        FOR NO KEY UPDATE SKIP LOCKED
    ))
    RETURNING consumer_id
),
forgotten AS (
    DELETE FROM pulljobs_flow_key
    WHERE ctid = ANY(ARRAY(SELECT place FROM found WHERE is_idle AND NOT gets_turn))
)
SELECT
    (SELECT count(*) FROM found) AS changed,
    ARRAY(SELECT consumer_id FROM found WHERE gets_turn UNION SELECT consumer_id FROM adopted) AS consumer_ids,
    reached.consumer_id AS reached_consumer_id,
    reached.key AS reached_key
FROM (SELECT count(*) AS keys FROM looked) AS counted
LEFT JOIN reached ON counted.keys >= %(looked_at)s::int
