-- Claim the first jobs of these keys, within their free slots. Updates of key rows are HOT: they write no turn.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
turn AS MATERIALIZED (
    SELECT row.*, asked.place
    FROM unnest(%(keys)s::text[]) WITH ORDINALITY AS asked (key, place)
    CROSS JOIN LATERAL (
        SELECT ctid AS key_row, key, weight, mark_id, holders
        FROM raw_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint
            AND key = asked.key
            AND pg_visible_in_snapshot(writer, (SELECT pg_current_snapshot()))
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS row
),
quantum AS MATERIALIZED (
    SELECT greatest(1, %(wanted)s::int / greatest(1, sum(weight)))::int AS jobs
    FROM turn
),
open AS MATERIALIZED (
    SELECT
        turn.*,
        live.ids AS live,
        least(weight * quantum.jobs, %(per_key)s::int - cardinality(live.ids)) AS most
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
pick AS MATERIALIZED (
    SELECT open.key, job.*
    FROM open
    CROSS JOIN LATERAL (
        SELECT ctid AS job_row, id, message_id, available_at
        FROM raw_flow_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND key = open.key
            AND id > open.mark_id
            AND available_at <= (SELECT now FROM clock)
            AND state = 0
        ORDER BY id
        LIMIT greatest(0, open.most)
        FOR UPDATE SKIP LOCKED
    ) AS job
    LIMIT %(wanted)s::int
),
result AS MATERIALIZED (
    SELECT open.key_row, open.live, taken.ids, taken.last_id
    FROM open
    JOIN (SELECT key, array_agg(id) AS ids, max(id) AS last_id FROM pick GROUP BY key) AS taken USING (key)
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
    SET holders = live || ids, mark_id = result.last_id, writer = pg_current_xact_id()
    FROM result
    WHERE row.ctid = result.key_row
)
SELECT id, message_id, available_at, key
FROM pick
