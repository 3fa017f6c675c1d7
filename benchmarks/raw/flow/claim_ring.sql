-- Claim by key in one statement: the keys that have waited longest for their turn, within each its first jobs.
-- A key gives as many jobs as its weight, its free slots and its tokens allow, and goes to the end of the ring, or to the
-- time of its next token. If the claim had no room for all of them, it keeps its turn. Without free slots it leaves the
-- ring until a job ends, and without jobs until another arrives.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
turn AS MATERIALIZED (
    SELECT
        ctid AS key_row, key, turn_at, weight, owed, mark_id, holders,
        least(
            %(burst)s::float8, tokens + %(per_second)s::float8 * date_part('epoch', (SELECT now FROM clock) - filled_at)
        ) AS tokens
    FROM raw_flow_key
    WHERE consumer_id = %(consumer_id)s::bigint
        AND turn_at >= %(turn_mark)s::timestamptz
        AND turn_at <= (SELECT now FROM clock)
        -- The version that was locked is the one of this snapshot: then no job of the key was claimed since.
        AND pg_visible_in_snapshot(writer, (SELECT pg_current_snapshot()))
    ORDER BY turn_at, key
    LIMIT %(wanted)s::int
    FOR NO KEY UPDATE SKIP LOCKED
),
quantum AS MATERIALIZED (
    SELECT greatest(1, %(wanted)s::int / greatest(1, sum(weight)))::int AS jobs
    FROM turn
),
open AS MATERIALIZED (
    SELECT
        turn.*,
        live.ids AS live,
        CASE WHEN owed > 0 THEN owed ELSE weight * quantum.jobs END AS due,
        least(
            CASE WHEN owed > 0 THEN owed ELSE weight * quantum.jobs END,
            %(per_key)s::int - cardinality(live.ids),
            floor(tokens)::int
        ) AS most
    FROM turn
    CROSS JOIN quantum
    CROSS JOIN LATERAL (
        SELECT ARRAY(
            SELECT holder.id
            FROM unnest(turn.holders) AS holder (id)
            CROSS JOIN LATERAL (
                SELECT
                FROM raw_flow_job
                WHERE id = holder.id
                LIMIT 1
            ) AS job
        ) AS ids
    ) AS live
),
allowed AS MATERIALIZED (
    SELECT *
    FROM (
        SELECT
            open.*,
            %(wanted)s::int
                - coalesce(sum(greatest(most, 0)) OVER (ORDER BY turn_at, key ROWS UNBOUNDED PRECEDING EXCLUDE CURRENT ROW), 0)
                AS room
        FROM open
    ) AS ordered
    WHERE room > 0
),
pick AS MATERIALIZED (
    SELECT allowed.key, job.*
    FROM allowed
    CROSS JOIN LATERAL (
        SELECT ctid AS job_row, id, message_id, available_at
        FROM raw_flow_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND key = allowed.key
            AND id > allowed.mark_id
            AND available_at <= (SELECT now FROM clock)
            AND state = 0
        ORDER BY id
        LIMIT greatest(0, least(allowed.most, allowed.room))
        FOR UPDATE SKIP LOCKED
    ) AS job
),
result AS MATERIALIZED (
    SELECT
        allowed.*,
        coalesce(taken.jobs, 0) AS taken,
        coalesce(taken.ids, '{}') AS ids,
        coalesce(taken.last_id, allowed.mark_id) AS last_id,
        -- Without this look, a key would keep its turn for a visit that finds nothing.
        EXISTS (
            SELECT
            FROM raw_flow_job
            WHERE consumer_id = %(consumer_id)s::bigint
                AND key = allowed.key
                AND id > coalesce(taken.last_id, allowed.mark_id)
                AND available_at <= (SELECT now FROM clock)
                AND state = 0
            OFFSET 0
        ) AS has_more
    FROM allowed
    LEFT JOIN (
        SELECT key, count(*)::int AS jobs, array_agg(id) AS ids, max(id) AS last_id
        FROM pick
        GROUP BY key
    ) AS taken USING (key)
),
lease AS (
    INSERT INTO raw_flow_lease (lease_token, claimed_at, leased_until, job_ids)
    SELECT
        %(lease_token)s::uuid,
        clock_timestamp(),
        clock_timestamp() + interval '30 s',
        ARRAY(SELECT id FROM pick)
    WHERE EXISTS (SELECT FROM pick)
),
claimed AS (
    UPDATE raw_flow_job
    SET state = 1, lease_token = %(lease_token)s::uuid, deliveries = deliveries + 1
    WHERE ctid = ANY(ARRAY(SELECT job_row FROM pick))
),
moved AS (
    UPDATE raw_flow_key AS row
    SET
        turn_at = CASE
            WHEN NOT has_more OR cardinality(live) + taken >= %(per_key)s::int THEN NULL
            WHEN result.tokens - taken < 1
                THEN (SELECT now FROM clock)
                    + make_interval(secs => (1 - (result.tokens - taken)) / %(per_second)s::float8)
            WHEN taken < due THEN row.turn_at
            ELSE (SELECT now FROM clock)
        END,
        owed = CASE WHEN has_more THEN greatest(0, due - taken) ELSE 0 END,
        is_full = has_more AND cardinality(live) + taken >= %(per_key)s::int,
        holders = CASE WHEN %(per_key)s::int < 2147483647 THEN live || ids ELSE '{}' END,
        tokens = result.tokens - taken,
        filled_at = (SELECT now FROM clock),
        mark_id = result.last_id,
        writer = pg_current_xact_id()
    FROM result
    WHERE row.ctid = result.key_row
)
SELECT
    pick.id, pick.message_id, pick.available_at, pick.key,
    (SELECT min(turn_at) FROM turn) AS turn_mark
FROM pick
