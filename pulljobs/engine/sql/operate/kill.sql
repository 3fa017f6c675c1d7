-- Kill jobs that wait or run; a holder finds its lease lost.
-- Event: kill.
-- Parameters: job_ids bigint[], states text[] (which of them are to end: QUEUED, INFLIGHT), reason text, error text (NULL: none).
-- Returns: job_id of those killed, was_held (a lease held the job, and its holder is to be notified), consumer_id, key (NULL: none that counts),
--   turn_key (NULL: its claims do not go by key), batch_id (NULL: no member).
-- Locks: the jobs, in order of id. Index: primary key.
WITH victim AS MATERIALIZED (
    SELECT id, lease_token, lease_token IS NOT NULL AS held
    FROM pulljobs_job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND state = ANY(%(states)s::text[])
    ORDER BY id
    FOR UPDATE
),
killed AS (
    UPDATE pulljobs_job AS job
    SET
        state = 'DEAD',
        lease_token = NULL,
        incremental_timeout = NULL,
        available_at = NULL,
        reason = %(reason)s::text,
        error = %(error)s::text
    FROM victim
    WHERE job.id = victim.id AND job.state = ANY(%(states)s::text[])
    RETURNING job.*, victim.held, victim.lease_token AS taken_from
),
archived AS (
    INSERT INTO pulljobs_archived_job (
        job_id, message_id, consumer_id, created_at, claimed_at, settled_at, retry_count, deliveries,
        state, reason, error
    )
    SELECT
        id,
        message_id,
        consumer_id,
        to_timestamp((id >> 22)::float8 / 1000 + ${epoch_seconds}),
        first_claimed_at,
        clock_timestamp(),
        retry_count,
        deliveries,
        state,
        reason,
        error
    FROM killed
),
summed AS (
    INSERT INTO pulljobs_batch_sum (batch_id, dead)
    SELECT batch_id, count(*)
    FROM killed
    WHERE batch_id IS NOT NULL
    GROUP BY batch_id
),
attempted AS (
    INSERT INTO pulljobs_attempt (
        job_id, lease_token, node_id, via, claimed_at, ended_at, leased_until, renewals, event, error
    )
    SELECT
        killed.id, held.lease_token, held.node_id, held.via, held.claimed_at, clock_timestamp(), held.leased_until,
        held.renewals, 'kill', killed.error
    FROM killed
    CROSS JOIN LATERAL (
        SELECT *
        FROM pulljobs_lease
        WHERE lease_token = killed.taken_from AND killed.id = ANY(job_ids)
        LIMIT 1
    ) AS held
)
SELECT id AS job_id, held AS was_held, consumer_id, key, turn_key, batch_id
FROM killed
