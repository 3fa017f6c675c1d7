-- Claim one job by its id, under its own lease.
-- Events: claim (source QUEUED), revive (source DEAD, retry count + 1).
-- Parameters: consumer_id bigint, job_id bigint, source text, node_id uuid, via text, lease_duration interval, max_lease interval,
--   incremental_timeout interval (NULL: none; it is part of the lease already), guarded boolean (the caller checked max_in_flight and
--   the rate, and locked the job's key).
-- Returns one row: lease_token, leased_until (NULL: not taken), refusal text: deleted, paused, throttled, unguarded, busy_key (a job
--   holds its key, or comes before it); NULL without a lease_token: the job is not in that state, or belongs to another
--   consumer; throttle_seconds float8 (NULL: not throttled).
-- Locks: the job. Index: primary key, exclusive key, pulljobs_job_key.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
job AS MATERIALIZED (
    SELECT id, key
    FROM pulljobs_job
    WHERE id = %(job_id)s::bigint
        AND consumer_id = %(consumer_id)s::bigint
        AND state = %(source)s::text
),
rival AS MATERIALIZED (
    SELECT holder.id
    FROM job
    JOIN pulljobs_exclusive_key AS row ON row.consumer_id = %(consumer_id)s::bigint AND row.key = job.key
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulljobs_job
        WHERE id = row.holder AND id <> job.id AND reason IS NULL
        LIMIT 1
    ) AS holder
    UNION ALL
    SELECT first.id
    FROM job
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND key = job.key
            AND id < job.id
            AND reason IS NULL
            AND (available_at IS NULL OR available_at <= clock.now)
            AND state = 'QUEUED'
        ORDER BY id
        LIMIT 1
    ) AS first
    WHERE %(source)s::text = 'QUEUED'
),
asked AS MATERIALIZED (
    SELECT
        CASE
            WHEN consumer.deleted_at IS NOT NULL THEN 'deleted'
            WHEN greatest(consumer.paused_until, channel.paused_until) > now THEN 'paused'
            WHEN consumer.throttled_until > now THEN 'throttled'
            WHEN (
                    consumer.max_in_flight IS NOT NULL OR consumer.rate_per_second IS NOT NULL OR consumer.limit_group_id IS NOT NULL
                    OR consumer.exclusive_keys OR consumer.takes_turns
                )
                AND NOT %(guarded)s::boolean
                THEN 'unguarded'
            WHEN consumer.exclusive_keys AND EXISTS (SELECT FROM rival) THEN 'busy_key'
        END AS refusal,
        consumer.throttled_until
    FROM pulljobs_consumer AS consumer
    JOIN pulljobs_channel AS channel ON channel.id = consumer.channel_id
    CROSS JOIN clock
    WHERE consumer.id = %(consumer_id)s::bigint
),
held AS MATERIALIZED (
    SELECT id, key
    FROM pulljobs_job
    WHERE id = (SELECT id FROM job)
        AND state = %(source)s::text
        AND EXISTS (SELECT FROM asked WHERE refusal IS NULL)
    FOR UPDATE
),
lease AS (
    INSERT INTO pulljobs_lease (lease_token, consumer_id, node_id, via, claimed_at, leased_until, hard_end, job_ids)
    SELECT
        gen_random_uuid(),
        %(consumer_id)s::bigint,
        %(node_id)s::uuid,
        %(via)s::text,
        now,
        now + %(lease_duration)s::interval,
        now + greatest(%(lease_duration)s::interval, %(max_lease)s::interval),
        ARRAY[held.id]
    FROM held, clock
    RETURNING lease_token, leased_until
),
taken AS (
    UPDATE pulljobs_job AS job
    SET
        state = 'INFLIGHT',
        lease_token = lease.lease_token,
        reason = NULL,
        incremental_timeout = %(incremental_timeout)s::interval,
        deliveries = deliveries + 1,
        retry_count = retry_count + CASE %(source)s::text WHEN 'DEAD' THEN 1 ELSE 0 END,
        first_claimed_at = coalesce(first_claimed_at, clock.now)
    FROM lease, held, clock
    WHERE job.id = held.id AND job.state = %(source)s::text
),
holding AS (
    UPDATE pulljobs_exclusive_key AS row
    SET holder = held.id
    FROM held
    WHERE row.consumer_id = %(consumer_id)s::bigint AND row.key = held.key
)
SELECT
    lease.lease_token,
    lease.leased_until,
    asked.refusal,
    CASE asked.refusal
        WHEN 'throttled' THEN extract(epoch FROM asked.throttled_until - clock_timestamp())::float8
    END AS throttle_seconds
FROM (SELECT) AS always
LEFT JOIN asked ON true
LEFT JOIN lease ON true
