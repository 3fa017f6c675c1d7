-- Take one job by its id, under a lease of its own.
-- Events: claim (source QUEUED), revive (source DEAD, retry count + 1).
-- Parameters: consumer_id bigint, job_id bigint, source text, node_id uuid, door text, lease interval, max_lease interval,
--   incremental_timeout interval (NULL: none; it is part of the lease already).
-- Returns: token, leased_until; no row: the job is not in that state, or not this consumer's.
-- Locks: the job. Index: primary key.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
held AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = %(job_id)s::bigint
        AND consumer_id = %(consumer_id)s::bigint
        AND state = %(source)s::text
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
SELECT token, leased_until
FROM lease
