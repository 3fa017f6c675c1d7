-- Look for settlements that break an invariant, a page of them at a time, the newest first. Slots and rates are those of the claims of a page.
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
    -- The change may have been committed a moment after its time, here and below.
    WHERE page.claimed_at > consumer.changed_at + interval '10 s' AND page.lease_token IS NOT NULL
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
rated AS MATERIALIZED (
    -- Claims of consumers with a rate of their own, or of each key, or of their group, since these rows were changed.
    SELECT page.job_id, page.message_id, page.claimed_at, page.consumer_id, bucket.*
    FROM page
    CROSS JOIN LATERAL (
        SELECT *
        FROM pulljobs_consumer
        WHERE id = page.consumer_id
        LIMIT 1
    ) AS consumer
    CROSS JOIN LATERAL (
        SELECT
            coalesce(rate_per_second, key_rate_per_second) AS per_second,
            coalesce(rate_burst::float8, greatest(rate_per_second, key_rate_per_second, 1)) AS burst,
            consumer.window_seconds,
            rate_per_key AS is_by_key,
            0::bigint AS group_id,
            consumer.changed_at + interval '10 s' AS since
        WHERE coalesce(rate_per_second, key_rate_per_second) IS NOT NULL
        UNION ALL
        SELECT
            shared.rate_per_second,
            coalesce(shared.rate_burst::float8, greatest(shared.rate_per_second, 1)),
            shared.window_seconds,
            false,
            shared.id,
            greatest(consumer.changed_at, shared.changed_at) + interval '10 s'
        FROM pulljobs_limit_group AS shared
        WHERE shared.id = consumer.limit_group_id AND shared.rate_per_second IS NOT NULL
    ) AS bucket
    WHERE page.claimed_at > bucket.since AND page.lease_token IS NOT NULL
),
claim AS MATERIALIZED (
    -- With the earlier claims of these jobs, except released ones, which gave their tokens back. Costs are not in the archive: each job
    -- counts as one token.
    SELECT DISTINCT
        rated.job_id,
        made.claimed_at,
        per_second,
        burst,
        window_seconds,
        group_id,
        CASE WHEN group_id = 0 THEN consumer_id ELSE 0 END AS consumer_id,
        CASE WHEN is_by_key THEN (SELECT coalesce(key, '') FROM pulljobs_message WHERE id = rated.message_id) END AS key
    FROM rated
    CROSS JOIN LATERAL (
        SELECT rated.claimed_at
        UNION ALL
        SELECT claimed_at
        FROM pulljobs_attempt
        WHERE job_id = rated.job_id AND event IN ('retry', 'expire') AND claimed_at > rated.since
    ) AS made
),
bill AS MATERIALIZED (
    -- Claims since the moment from which on they are the most above the rate, and claims of each fixed window. A claim of the last
    -- second of a window may have been paid in the next one.
    SELECT
        *,
        number - per_second * second - min(number - 1 - per_second * second) OVER (bucket ORDER BY claimed_at, job_id) AS above_rate,
        count(*) FILTER (WHERE second - floor(second / window_seconds) * window_seconds < window_seconds - 1) OVER (
            PARTITION BY consumer_id, group_id, key, floor(second / window_seconds)
        ) AS in_window
    FROM (
        SELECT
            *,
            date_part('epoch', claimed_at) AS second,
            row_number() OVER (PARTITION BY consumer_id, group_id, key ORDER BY claimed_at, job_id)::float8 AS number
        FROM claim
    ) AS counted
    WINDOW bucket AS (PARTITION BY consumer_id, group_id, key)
),
broken (invariant, id) AS (
    SELECT DISTINCT 'claims_keep_the_rate', job_id
    FROM bill
    WHERE CASE
        WHEN window_seconds IS NULL THEN above_rate > burst + 0.01 + per_second / 1000
        ELSE in_window > round(per_second * window_seconds)
    END
    UNION ALL
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
