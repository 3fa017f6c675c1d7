-- Claim jobs of an exclusive consumer under one new lease: the first job of each locked key that is free, and jobs
-- without a key; block the jobs behind keys that are not free.
-- Event: claim. In the transaction of lock_keys_to_claim.sql, and a statement of its own.
-- Parameters: consumer_id bigint, wanted int, job_ids bigint[], job_keys text[] (of find_keyed.sql, of one length), keys text[]
--   (that were locked), node_id uuid, via text, lease_duration interval (NULL: the consumer's), max_lease interval, request_id text
--   (NULL: none), guarded boolean (the caller has checked max_in_flight and the rate).
-- Returns one row: xid, lease_token, leased_until, the jobs as arrays in the order claimed (job_ids, message_ids, job_priorities,
--   retry_counts, deliveries, suspects), blocked_ids bigint[], pause_seconds float8 (NULL: none), is_open boolean (false: the
--   type of the consumer forbids this via), refusal text as in claim.sql, where unguarded can also mean that it is not exclusive.
-- Locks: the jobs taken and blocked, skipping jobs that other transactions have locked. Index: pulljobs_job_key, job primary key.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
${open_consumer},
seen AS MATERIALIZED (
    SELECT *
    FROM unnest(%(job_ids)s::bigint[], %(job_keys)s::text[]) WITH ORDINALITY AS row (id, key, place)
),
locked AS MATERIALIZED (
    SELECT row.key, holder.id AS holder, place
    FROM unnest(%(keys)s::text[]) AS locked (key)
    CROSS JOIN LATERAL (
        SELECT key, holder
        FROM pulljobs_exclusive_key
        WHERE consumer_id = %(consumer_id)s::bigint AND key = locked.key
        LIMIT 1
    ) AS row
    JOIN (SELECT key, min(place) AS place FROM seen GROUP BY key) AS first ON first.key = row.key
    LEFT JOIN LATERAL (
        -- A settled job holds no key.
        SELECT id
        FROM pulljobs_job
        WHERE id = row.holder AND reason IS NULL
        LIMIT 1
    ) AS holder ON true
),
head AS MATERIALIZED (
    -- The first job of a free key by id, blocked or not, but not a delayed job.
    SELECT place, job.*
    FROM consumer
    CROSS JOIN locked
    CROSS JOIN LATERAL (
        SELECT id, message_id, priority, key, retry_count, deliveries, suspect
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND key = locked.key
            AND reason IS NULL
            AND (available_at IS NULL OR available_at <= (SELECT now FROM clock))
            AND state = 'QUEUED'
        ORDER BY id
        LIMIT 1
        FOR UPDATE SKIP LOCKED
    ) AS job
    WHERE locked.holder IS NULL
    UNION ALL
    -- Jobs that hold their keys while they wait for a retry, and jobs without a key.
    SELECT seen.place, job.*
    FROM consumer
    CROSS JOIN seen
    LEFT JOIN locked ON locked.key = seen.key
    CROSS JOIN LATERAL (
        SELECT id, message_id, priority, key, retry_count, deliveries, suspect
        FROM pulljobs_job
        WHERE id = seen.id AND state = 'QUEUED' AND available_at <= (SELECT now FROM clock)
        FOR UPDATE SKIP LOCKED
    ) AS job
    WHERE seen.key IS NULL OR seen.id = locked.holder
),
pick AS MATERIALIZED (
    SELECT *
    FROM head
    ORDER BY place
    LIMIT %(wanted)s::int
),
lease AS (
    INSERT INTO pulljobs_lease (
        lease_token, consumer_id, node_id, via, claimed_at, leased_until, hard_end, job_ids, request_id
    )
    SELECT
        gen_random_uuid(),
        consumer.id,
        %(node_id)s::uuid,
        %(via)s::text,
        clock.now,
        clock.now + consumer.lease_duration,
        clock.now + greatest(consumer.lease_duration, %(max_lease)s::interval),
        ARRAY(SELECT id FROM pick),
        %(request_id)s::text
    FROM consumer, clock
    WHERE EXISTS (SELECT FROM pick)
    ON CONFLICT (consumer_id, request_id) WHERE request_id IS NOT NULL DO NOTHING
    RETURNING lease_token, leased_until, pg_current_xact_id() AS xid
),
claimed AS (
    UPDATE pulljobs_job
    SET
        state = 'INFLIGHT',
        lease_token = (SELECT lease_token FROM lease),
        deliveries = deliveries + 1,
        first_claimed_at = coalesce(first_claimed_at, (SELECT now FROM clock))
    WHERE id = ANY(ARRAY(SELECT id FROM pick)) AND state = 'QUEUED' AND (SELECT lease_token FROM lease) IS NOT NULL
),
holding AS (
    -- No join, which might begin with all keys of the consumer.
    UPDATE pulljobs_exclusive_key
    SET holder = ((SELECT jsonb_object_agg(key, id) FROM pick WHERE key IS NOT NULL) -> key)::bigint
    WHERE consumer_id = %(consumer_id)s::bigint AND key = ANY(ARRAY(SELECT key FROM pick))
),
waiting AS MATERIALIZED (
    SELECT job.id
    FROM consumer
    CROSS JOIN seen
    JOIN locked ON locked.key = seen.key
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulljobs_job
        WHERE id = seen.id AND state = 'QUEUED' AND available_at IS NOT NULL
        FOR UPDATE SKIP LOCKED
    ) AS job
    WHERE (locked.holder IS NOT NULL OR seen.key IN (SELECT key FROM pick))
        AND seen.id IS DISTINCT FROM locked.holder
        AND seen.id NOT IN (SELECT id FROM pick)
),
blocked AS (
    UPDATE pulljobs_job
    SET available_at = NULL
    WHERE id = ANY(ARRAY(SELECT id FROM waiting)) AND state = 'QUEUED'
)
SELECT
    (CASE WHEN EXISTS (SELECT FROM waiting) THEN pg_current_xact_id() ELSE lease.xid END)::text::bigint AS xid,
    lease.lease_token,
    lease.leased_until,
    ARRAY(SELECT id FROM pick ORDER BY place) AS job_ids,
    ARRAY(SELECT message_id FROM pick ORDER BY place) AS message_ids,
    ARRAY(SELECT priority FROM pick ORDER BY place) AS job_priorities,
    ARRAY(SELECT retry_count FROM pick ORDER BY place) AS retry_counts,
    ARRAY(SELECT deliveries + 1 FROM pick ORDER BY place) AS deliveries,
    ARRAY(SELECT suspect FROM pick ORDER BY place) AS suspects,
    ARRAY(SELECT id FROM waiting) AS blocked_ids,
    CASE
        WHEN asked.refusal IN ('paused', 'throttled') THEN extract(epoch FROM asked.closed_until - clock_timestamp())::float8
    END AS pause_seconds,
    asked.is_open,
    CASE
        WHEN asked.id IS NULL THEN 'deleted'
        WHEN lease.lease_token IS NULL AND EXISTS (SELECT FROM pick) THEN 'repeated'
        ELSE asked.refusal
    END AS refusal
FROM (SELECT) AS always
LEFT JOIN asked ON true
LEFT JOIN lease ON true
