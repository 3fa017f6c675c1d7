-- Give jobs a full new lease from now, never past the hard end of their claim and never a shorter one.
-- Event: renew. Jobs renewed apart from others of their claim move to a lease row of their own, with the same lease_token.
-- Parameters: job_ids bigint[], lease_tokens uuid[] (of one length), lease_duration interval (NULL: the consumer's),
--   running bigint[] (of a worker: those of them that run now, which is noted; NULL: nothing is).
-- Returns: job_id, lease_token, leased_until of those that are renewed; a missing job is lost, or its lease row is locked or at its hard end.
-- Locks: the lease rows, skipping those of other transactions: a renewal waits for nothing. Index: lease lease_token, job primary key.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
offered AS MATERIALIZED (
    SELECT DISTINCT job_id, lease_token
    FROM unnest(%(job_ids)s::bigint[], %(lease_tokens)s::uuid[]) AS row (job_id, lease_token)
),
lease AS MATERIALIZED (
    SELECT *
    FROM pulljobs_lease
    WHERE lease_token = ANY(%(lease_tokens)s::uuid[]) AND hard_end > clock_timestamp()
    -- + 0: so that the plan finds leases by their lease_token, and never reads the whole primary key.
    ORDER BY id + 0
    FOR UPDATE SKIP LOCKED
),
held AS MATERIALIZED (
    -- One by one: a join might scan the table.
    SELECT lease.id AS lease_id, job.id AS job_id, offered.job_id IS NOT NULL AS wanted
    FROM lease
    CROSS JOIN unnest(lease.job_ids) AS member (job_id)
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulljobs_job
        WHERE id = member.job_id AND lease_token = lease.lease_token AND state = 'INFLIGHT'
        LIMIT 1
    ) AS job
    LEFT JOIN offered ON offered.job_id = job.id AND offered.lease_token = lease.lease_token
),
parted AS MATERIALIZED (
    SELECT
        lease_id,
        array_agg(job_id) FILTER (WHERE wanted) AS renewed,
        CASE
            WHEN %(running)s::bigint[] IS NOT NULL THEN
                coalesce(array_agg(job_id) FILTER (WHERE wanted AND job_id = ANY(%(running)s)), '{}')
        END AS running,
        array_agg(job_id) FILTER (WHERE NOT wanted) AS rest
    FROM held
    GROUP BY lease_id
    HAVING bool_or(wanted)
),
renewed AS MATERIALIZED (
    SELECT
        parted.*,
        lease.lease_token,
        least(
            lease.hard_end,
            greatest(lease.leased_until, clock.now + coalesce(%(lease_duration)s::interval, consumer.lease_duration))
        ) AS leased_until
    FROM parted
    JOIN lease ON lease.id = parted.lease_id
    CROSS JOIN LATERAL (
        -- One by one: a join might read all consumers, of which thousands may be idle.
        SELECT lease_duration
        FROM pulljobs_consumer
        WHERE id = lease.consumer_id
        LIMIT 1
    ) AS consumer
    CROSS JOIN clock
),
together AS (
    UPDATE pulljobs_lease AS lease
    SET
        leased_until = renewed.leased_until,
        renewals = lease.renewals + 1,
        job_ids = renewed.renewed,
        running_ids = coalesce(renewed.running, lease.running_ids)
    FROM renewed
    WHERE lease.id = renewed.lease_id AND renewed.rest IS NULL
        -- Else a plan made while the table is empty may begin with all of it.
        AND lease.id = ANY(ARRAY(SELECT lease_id FROM renewed))
),
left_behind AS (
    UPDATE pulljobs_lease AS lease
    SET job_ids = renewed.rest
    FROM renewed
    WHERE lease.id = renewed.lease_id AND renewed.rest IS NOT NULL
        AND lease.id = ANY(ARRAY(SELECT lease_id FROM renewed))
),
apart AS (
    INSERT INTO pulljobs_lease (
        lease_token, consumer_id, node_id, via, claimed_at, leased_until, hard_end, job_ids, running_ids,
        renewals
    )
    SELECT
        lease.lease_token, lease.consumer_id, lease.node_id, lease.via, lease.claimed_at,
        renewed.leased_until, lease.hard_end, renewed.renewed, coalesce(renewed.running, lease.running_ids),
        lease.renewals + 1
    FROM renewed
    JOIN lease ON lease.id = renewed.lease_id
    WHERE renewed.rest IS NOT NULL
)
SELECT member.job_id, renewed.lease_token, renewed.leased_until
FROM renewed
CROSS JOIN unnest(renewed.renewed) AS member (job_id)
