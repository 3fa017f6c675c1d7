-- Claim again, under a new lease, the jobs of a batch that are not leased now.
-- Event: claim. A pause does not prevent it, because the batch began before. Delayed retries are claimed, too.
-- Parameters: consumer_id bigint, job_ids bigint[] (in the order of the batch), wanted int (maximum), node_id uuid, via
--   text, lease_duration interval (NULL: the consumer's), max_lease interval, exclusive, by_turn boolean (their keys are locked).
-- Returns one row: lease_token (NULL: none could be taken), taken int8.
-- Locks: the jobs, in order of id, waiting for other locks. Index: job primary key, exclusive key, flow key, pulljobs_job_key.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
asked AS MATERIALIZED (
    SELECT job_id, place
    FROM unnest(%(job_ids)s::bigint[]) WITH ORDINALITY AS row (job_id, place)
),
free AS MATERIALIZED (
    SELECT id, key, turn_key
    FROM pulljobs_job
    WHERE id = ANY(%(job_ids)s::bigint[])
        AND consumer_id = %(consumer_id)s::bigint
        AND state = 'QUEUED'
    ORDER BY id
    FOR UPDATE
),
slot AS MATERIALIZED (
    -- Free slots of each key that has slots.
    SELECT row.key, consumer.max_in_flight_per_key - (
        SELECT count(*)
        FROM unnest(row.holders) AS holder (id)
        CROSS JOIN LATERAL (
            SELECT
            FROM pulljobs_job
            WHERE id = holder.id AND state = 'INFLIGHT'
            LIMIT 1
        ) AS job
    ) AS jobs
    FROM pulljobs_consumer AS consumer
    CROSS JOIN (SELECT DISTINCT turn_key FROM free WHERE %(by_turn)s::boolean AND turn_key IS NOT NULL) AS turned
    JOIN pulljobs_flow_key AS row ON row.consumer_id = consumer.id AND row.key = turned.turn_key
    WHERE consumer.id = %(consumer_id)s::bigint AND consumer.max_in_flight_per_key IS NOT NULL
),
numbered AS MATERIALIZED (
    SELECT free.*, asked.place, row_number() OVER (PARTITION BY free.turn_key ORDER BY asked.place) AS number
    FROM free
    JOIN asked ON asked.job_id = free.id
),
pick AS MATERIALIZED (
    SELECT free.id, free.key, free.turn_key, free.place
    FROM numbered AS free
    CROSS JOIN clock
    LEFT JOIN slot ON slot.key = free.turn_key
    WHERE (slot.jobs < free.number) IS NOT TRUE
        AND (
            NOT %(exclusive)s::boolean
            OR free.key IS NULL
            OR NOT EXISTS (
                SELECT
                FROM pulljobs_exclusive_key AS row
                JOIN pulljobs_job AS holder ON holder.id = row.holder
                WHERE row.consumer_id = %(consumer_id)s::bigint
                    AND row.key = free.key
                    AND holder.id <> free.id
                    AND holder.reason IS NULL
                UNION ALL
                SELECT
                FROM pulljobs_job AS earlier
                WHERE earlier.consumer_id = %(consumer_id)s::bigint
                    AND earlier.key = free.key
                    AND earlier.id < free.id
                    AND earlier.reason IS NULL
                    AND (earlier.available_at IS NULL OR earlier.available_at <= clock.now)
                    AND earlier.state = 'QUEUED'
            )
        )
    ORDER BY free.place
    LIMIT %(wanted)s::int
),
lease AS (
    INSERT INTO pulljobs_lease (lease_token, consumer_id, node_id, via, claimed_at, leased_until, hard_end, job_ids)
    SELECT
        gen_random_uuid(),
        consumer.id,
        %(node_id)s::uuid,
        %(via)s::text,
        clock.now,
        clock.now + coalesce(%(lease_duration)s::interval, consumer.lease_duration),
        clock.now + greatest(coalesce(%(lease_duration)s::interval, consumer.lease_duration), %(max_lease)s::interval),
        ARRAY(SELECT id FROM pick ORDER BY place)
    FROM pulljobs_consumer AS consumer
    CROSS JOIN clock
    WHERE consumer.id = %(consumer_id)s::bigint AND EXISTS (SELECT FROM pick)
    RETURNING lease_token
),
taken AS (
    UPDATE pulljobs_job
    SET
        state = 'INFLIGHT',
        lease_token = (SELECT lease_token FROM lease),
        deliveries = deliveries + 1,
        first_claimed_at = coalesce(first_claimed_at, (SELECT now FROM clock))
    WHERE id = ANY(ARRAY(SELECT id FROM pick)) AND state = 'QUEUED'
),
holding_slots AS (
    UPDATE pulljobs_flow_key AS row
    SET holders = row.holders || held.ids, writer = pg_current_xact_id()
    FROM (SELECT turn_key, array_agg(id) AS ids FROM pick GROUP BY turn_key) AS held
    WHERE row.consumer_id = %(consumer_id)s::bigint
        AND row.key = held.turn_key
        AND row.key = ANY(ARRAY(SELECT key FROM slot))
),
holding AS (
    UPDATE pulljobs_exclusive_key
    SET holder = ((SELECT jsonb_object_agg(key, id) FROM pick WHERE key IS NOT NULL) -> key)::bigint
    WHERE %(exclusive)s::boolean
        AND consumer_id = %(consumer_id)s::bigint
        AND key = ANY(ARRAY(SELECT key FROM pick))
)
SELECT (SELECT lease_token FROM lease) AS lease_token, (SELECT count(*) FROM pick) AS taken
