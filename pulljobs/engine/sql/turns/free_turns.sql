-- Free the slots of jobs that are not in flight any more, and give keys that had none a turn; delete rows of keys without jobs.
-- Event: none. In the transaction of lock_turns.sql, and a statement of its own.
-- Parameters: consumer_ids bigint[], keys text[] (locked, of one length).
-- Returns one row: changed int8, the number of keys that have a turn now and had none.
-- Locks: held already. Index: flow key, pulljobs_job_turn, job primary key.
WITH ${clock_after_id},
locked AS MATERIALIZED (
    SELECT
        row.ctid AS place,
        live.ids AS live_ids,
        row.is_full AND (cardinality(live.ids) < consumer.max_in_flight_per_key) IS NOT FALSE AS gets_turn,
        row.weight = 1
            AND row.tokens IS NULL
            AND row.turn_at IS NULL
            AND (row.throttled_until > clock.now) IS NOT TRUE
            AND NOT EXISTS (
                SELECT
                FROM pulljobs_job
                WHERE consumer_id = row.consumer_id AND turn_key = row.key AND reason IS NULL
                -- One by one: without OFFSET the planner may read all jobs into a hash.
                OFFSET 0
            ) AS is_idle
    FROM unnest(%(consumer_ids)s::bigint[], %(keys)s::text[]) AS asked (consumer_id, key)
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT ctid, *
        FROM pulljobs_flow_key
        WHERE consumer_id = asked.consumer_id AND key = asked.key
        LIMIT 1
    ) AS row
    CROSS JOIN LATERAL (
        SELECT max_in_flight_per_key
        FROM pulljobs_consumer
        WHERE id = row.consumer_id
        LIMIT 1
    ) AS consumer
    CROSS JOIN LATERAL (
        SELECT ARRAY(
            SELECT holder.id
            ${live_holders}
        ) AS ids
    ) AS live
),
freed AS (
    -- Every row is written, full or not: else a claim that still sees the ended job could count it as a holder afterwards, and no job
    -- would end that frees the key.
    UPDATE pulljobs_flow_key AS row
    SET
        holders = locked.live_ids,
        is_full = row.is_full AND NOT locked.gets_turn,
        turn_at = CASE WHEN locked.gets_turn THEN greatest(clock.now, row.throttled_until) ELSE row.turn_at END,
        writer = (SELECT xid FROM transaction)
    FROM locked, clock
    WHERE row.ctid = locked.place
        AND NOT locked.is_idle
        -- Else a join may begin with all keys of all consumers.
        AND row.ctid = ANY(ARRAY(SELECT place FROM locked))
),
forgotten AS (
    DELETE FROM pulljobs_flow_key
    WHERE ctid = ANY(ARRAY(SELECT place FROM locked WHERE is_idle))
)
SELECT count(*) AS changed
FROM locked
WHERE gets_turn AND NOT is_idle
