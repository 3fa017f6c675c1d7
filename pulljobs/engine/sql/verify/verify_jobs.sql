-- Look for live jobs that break an invariant, a page of them at a time.
-- Event: none.
-- Parameters: after bigint (the last id of the page before), wanted int, since bigint (what has lower ids may have outlived its
--   history), overtaken interval (how long a job may wait while later ones of its priority were claimed).
-- Returns one row: reached bigint (NULL: the end), looked_at int8, invariants text[] and ids bigint[] of one length: jobs.
-- Locks: none. Index: primary keys, flow key, lease lease_token, archived job_id, pulljobs_job_key, pulljobs_job_claim.
WITH page AS MATERIALIZED (
    SELECT
        job.*,
        consumer.exclusive_keys,
        consumer.takes_turns,
        consumer.max_in_flight_per_key AS slots,
        consumer.changed_at,
        consumer.id IS NULL AS is_stray
    FROM (
        SELECT *
        FROM pulljobs_job
        WHERE id > %(after)s::bigint
        ORDER BY id
        LIMIT %(wanted)s::int
    ) AS job
    LEFT JOIN pulljobs_consumer AS consumer ON consumer.id = job.consumer_id
),
lease AS MATERIALIZED (
    SELECT
        page.id, count(*) FILTER (WHERE lease.consumer_id = page.consumer_id) AS naming, min(lease.claimed_at) AS claimed_at
    FROM page
    JOIN pulljobs_lease AS lease ON lease.lease_token = page.lease_token AND page.id = ANY(lease.job_ids)
    WHERE page.state = 'INFLIGHT'
    GROUP BY page.id
),
broken (invariant, id) AS (
    SELECT 'job_is_legal', id
    FROM page
    WHERE state NOT IN ('QUEUED', 'INFLIGHT', 'DEAD')
        OR (state = 'INFLIGHT') <> (lease_token IS NOT NULL)
        OR (state = 'DEAD') <> (reason IS NOT NULL)
        OR (state = 'DEAD' AND available_at IS NOT NULL)
        OR retry_count < 0
        OR deliveries < 0
    UNION ALL
    SELECT 'in_flight_is_leased', page.id
    FROM page
    LEFT JOIN lease USING (id)
    WHERE page.state = 'INFLIGHT' AND coalesce(lease.naming, 0) = 0
    UNION ALL
    SELECT 'leased_once', id
    FROM lease
    WHERE naming > 1
    UNION ALL
    SELECT 'job_has_its_message', id
    FROM page
    WHERE NOT EXISTS (SELECT FROM pulljobs_message WHERE id = page.message_id)
    UNION ALL
    SELECT 'job_has_its_consumer', id
    FROM page
    WHERE is_stray
    UNION ALL
    SELECT 'delivered_is_gone', id
    FROM page
    WHERE EXISTS (SELECT FROM pulljobs_archived_job WHERE job_id = page.id AND state = 'DELIVERED')
    UNION ALL
    SELECT 'dead_is_remembered', id
    FROM page
    WHERE state = 'DEAD'
        AND id >= %(since)s::bigint
        AND NOT EXISTS (SELECT FROM pulljobs_archived_job WHERE job_id = page.id AND state = 'DEAD')
    UNION ALL
    SELECT 'one_in_flight_a_key', id
    FROM page
    WHERE state = 'INFLIGHT'
        AND exclusive_keys
        AND key IS NOT NULL
        AND EXISTS (
            SELECT
            FROM pulljobs_job
            WHERE consumer_id = page.consumer_id
                AND key = page.key
                AND reason IS NULL
                AND state = 'INFLIGHT'
                AND id <> page.id
        )
    UNION ALL
    -- The job is the next of its key, the key has no holder, and no claimable job would ever free it. (Jobs behind it may be
    -- seen at moments in which the key passes from one job to the next.)
    SELECT 'blocked_behind_a_job', id
    FROM page
    WHERE state = 'QUEUED'
        AND available_at IS NULL
        AND NOT EXISTS (
            SELECT
            FROM pulljobs_job
            WHERE exclusive_keys
                AND consumer_id = page.consumer_id
                AND key = page.key
                AND reason IS NULL
                AND (state = 'INFLIGHT' OR available_at IS NOT NULL OR id < page.id)
        )
    UNION ALL
    -- Later jobs of its priority were claimed long after this one could have been.
    SELECT 'claimed_in_turn', id
    FROM page
    WHERE state = 'QUEUED'
        AND exclusive_keys IS NOT TRUE
        AND takes_turns IS NOT TRUE
        AND available_at < clock_timestamp() - %(overtaken)s::interval
        AND EXISTS (
            SELECT
            FROM pulljobs_lease AS later
            JOIN pulljobs_job AS overtaking ON overtaking.id = ANY(later.job_ids) AND overtaking.lease_token = later.lease_token
            WHERE later.consumer_id = page.consumer_id
                AND later.claimed_at > page.available_at + %(overtaken)s::interval
                AND overtaking.priority = page.priority
                AND overtaking.available_at > page.available_at + %(overtaken)s::interval
        )
    UNION ALL
    -- Claimed since the consumer was changed: before, its keys may have had no slots, or more.
    SELECT 'slots_of_a_key', page.id
    FROM page
    JOIN lease ON lease.id = page.id
    LEFT JOIN LATERAL (
        SELECT holders
        FROM pulljobs_flow_key
        WHERE consumer_id = page.consumer_id AND key = page.turn_key
        LIMIT 1
    ) AS row ON true
    WHERE page.state = 'INFLIGHT'
        AND page.slots IS NOT NULL
        AND page.turn_key IS NOT NULL
        AND lease.claimed_at > page.changed_at
        AND (
            (page.id = ANY(row.holders)) IS NOT TRUE
            OR (
                SELECT count(*)
                FROM unnest(row.holders) AS holder (id)
                CROSS JOIN LATERAL (
                    SELECT
                    FROM pulljobs_job
                    WHERE id = holder.id AND state = 'INFLIGHT' AND first_claimed_at > page.changed_at
                    LIMIT 1
                ) AS job
            ) > page.slots
        )
    UNION ALL
    -- Other jobs of the consumer were claimed long after this one could have been, and no end of a job will free its key.
    SELECT 'waiting_key_has_a_turn', page.id
    FROM page
    LEFT JOIN LATERAL (
        SELECT turn_at, is_full
        FROM pulljobs_flow_key
        WHERE consumer_id = page.consumer_id AND key = page.turn_key
        LIMIT 1
    ) AS row ON true
    WHERE page.state = 'QUEUED'
        AND page.takes_turns
        AND page.available_at < clock_timestamp() - %(overtaken)s::interval
        AND row.turn_at IS NULL
        AND row.is_full IS NOT TRUE
        AND EXISTS (
            SELECT
            FROM pulljobs_lease
            WHERE consumer_id = page.consumer_id AND claimed_at > page.available_at + %(overtaken)s::interval
        )
)
SELECT
    (SELECT max(id) FROM page) AS reached,
    (SELECT count(*) FROM page) AS looked_at,
    ARRAY(SELECT invariant FROM broken ORDER BY id, invariant) AS invariants,
    ARRAY(SELECT id FROM broken ORDER BY id, invariant) AS ids
