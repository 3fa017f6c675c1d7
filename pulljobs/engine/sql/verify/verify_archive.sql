-- Look for settlements that break an invariant, a page of them at a time, the newest first.
-- Event: none.
-- Parameters: after bigint (the last id of the page before), wanted int.
-- Returns one row: reached bigint (NULL: the end), looked_at int8, invariants text[] and ids bigint[] of one length: the jobs.
-- Locks: none. Index: primary key of each partition, archived job_id.
WITH page AS MATERIALIZED (
    SELECT id, job_id, message_id, consumer_id, claimed_at, settled_at, state, reason, lease_token
    FROM pulljobs_archived_job
    WHERE id < %(after)s::bigint
    ORDER BY id DESC
    LIMIT %(wanted)s::int
),
slotted AS MATERIALIZED (
    -- Settlements of jobs whose keys have slots. Those before a change of the consumer may have had other limits.
    SELECT page.job_id, page.consumer_id, coalesce(message.key, '') AS key, page.claimed_at, page.settled_at, consumer.slots
    FROM page
    CROSS JOIN LATERAL (
        SELECT max_in_flight_per_key AS slots, changed_at
        FROM pulljobs_consumer
        WHERE id = page.consumer_id AND max_in_flight_per_key IS NOT NULL
        LIMIT 1
    ) AS consumer
    CROSS JOIN LATERAL (
        SELECT key
        FROM pulljobs_message
        WHERE id = page.message_id
        LIMIT 1
    ) AS message
    WHERE page.claimed_at > consumer.changed_at AND page.lease_token IS NOT NULL
),
instant AS MATERIALIZED (
    SELECT job_id, is_claim, slots, sum(change) OVER (PARTITION BY consumer_id, key ORDER BY at, change, job_id) AS in_flight
    FROM (
        SELECT job_id, true AS is_claim, slots, consumer_id, key, claimed_at AS at, 1 AS change
        FROM slotted
        UNION ALL
        SELECT job_id, false, slots, consumer_id, key, settled_at, -1
        FROM slotted
    ) AS changes
),
broken (invariant, id) AS (
    SELECT 'slots_at_every_instant', job_id
    FROM instant
    WHERE is_claim AND in_flight > slots
    UNION ALL
    SELECT 'settlement_is_legal', job_id
    FROM page
    WHERE state NOT IN ('DELIVERED', 'DEAD') OR (state = 'DEAD') <> (reason IS NOT NULL)
    UNION ALL
    SELECT 'claim_settles_once', job_id
    FROM page
    WHERE EXISTS (
        SELECT
        FROM pulljobs_archived_job
        WHERE job_id = page.job_id AND lease_token = page.lease_token AND id <> page.id
    )
    UNION ALL
    SELECT 'delivered_once', job_id
    FROM page
    WHERE state = 'DELIVERED'
        AND EXISTS (
            SELECT
            FROM pulljobs_archived_job
            WHERE job_id = page.job_id AND state = 'DELIVERED' AND id <> page.id
        )
)
SELECT
    (SELECT min(id) FROM page) AS reached,
    (SELECT count(*) FROM page) AS looked_at,
    ARRAY(SELECT invariant FROM broken ORDER BY id, invariant) AS invariants,
    ARRAY(SELECT id FROM broken ORDER BY id, invariant) AS ids
