-- Common table expressions of a claim that put the taken jobs under a new lease; without jobs, or under a known request_id, there is none.
-- Parameters: node_id uuid, via text, max_lease interval, request_id text (NULL: none). Needs consumer, clock (now) and taken (jobs, ids).
-- Gives lease (lease_token, leased_until, xid) and claimed.
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
        taken.ids,
        %(request_id)s::text
    FROM consumer, clock, taken
    WHERE taken.jobs > 0
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
    WHERE id = ANY((SELECT ids FROM taken)::bigint[]) AND state = 'QUEUED' AND (SELECT lease_token FROM lease) IS NOT NULL
)
