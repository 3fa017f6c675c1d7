-- Take one job by its id, under a lease of its own.
-- Events: claim (source QUEUED), revive (source DEAD, retry count + 1).
-- Parameters: consumer_id bigint, job_id bigint, source text, node_id uuid, door text, lease interval, max_lease interval,
--   incremental_timeout interval (NULL: none; it is part of the lease already), guarded boolean (max_in_flight was seen to).
-- Returns one row: token, leased_until (NULL: not taken), refusal text: deleted, paused, unguarded; NULL beside no token: the
--   job is not in that state, or not this consumer's.
-- Locks: the job. Index: primary key.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
asked AS MATERIALIZED (
    SELECT
        CASE
            WHEN consumer.deleted_at IS NOT NULL THEN 'deleted'
            WHEN greatest(consumer.paused_until, channel.paused_until) > now THEN 'paused'
            WHEN consumer.max_in_flight IS NOT NULL AND NOT %(guarded)s::boolean THEN 'unguarded'
        END AS refusal
    FROM pulljobs_consumer AS consumer
    JOIN pulljobs_channel AS channel ON channel.id = consumer.channel_id
    CROSS JOIN clock
    WHERE consumer.id = %(consumer_id)s::bigint
),
held AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = %(job_id)s::bigint
        AND consumer_id = %(consumer_id)s::bigint
        AND state = %(source)s::text
        AND EXISTS (SELECT FROM asked WHERE refusal IS NULL)
    FOR UPDATE
),
lease AS (
    INSERT INTO pulljobs_lease (token, consumer_id, node_id, door, claimed_at, leased_until, hard_end, job_ids)
    SELECT
        gen_random_uuid(),
        %(consumer_id)s::bigint,
        %(node_id)s::uuid,
        %(door)s::text,
        now,
        now + %(lease)s::interval,
        now + greatest(%(lease)s::interval, %(max_lease)s::interval),
        ARRAY[held.id]
    FROM held, clock
    RETURNING token, leased_until
),
taken AS (
    UPDATE pulljobs_job AS job
    SET
        state = 'INFLIGHT',
        lease = lease.token,
        reason = NULL,
        incremental_timeout = %(incremental_timeout)s::interval,
        deliveries = deliveries + 1,
        retry_count = retry_count + CASE %(source)s::text WHEN 'DEAD' THEN 1 ELSE 0 END,
        first_claimed_at = coalesce(first_claimed_at, clock.now)
    FROM lease, held, clock
    WHERE job.id = held.id AND job.state = %(source)s::text
)
SELECT lease.token, lease.leased_until, asked.refusal
FROM (SELECT) AS always
LEFT JOIN asked ON true
LEFT JOIN lease ON true
