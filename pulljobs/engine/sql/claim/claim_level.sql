-- Claim jobs of a consumer under one new lease while all waiting jobs have one priority.
-- This is the most frequent case of claim.sql, in half of its fixed time.
-- Event: claim.
-- Parameters: consumer_id bigint, wanted int, node_id uuid, via text, lease_duration interval (NULL: the consumer's),
--   max_lease interval; where to enter the index (low_water_marks.py): priority int, mark_at timestamptz, mark_id bigint; few int
--   (return messages inline when at most this many jobs were claimed; NULL: never) and the bounds of their ids, lowest and highest
--   bigint, so that only these days' partitions are read.
-- Returns one row: started_at, snapshot, xid, lease_token, leased_until, the jobs as arrays in the order claimed (job_ids,
--   message_ids; NULL: nothing taken; and retry_counts, deliveries, suspects; NULL: all are claimed for the first time), how far the
--   priority was taken (reached_at, reached_id; NULL: not at all) without leaving one behind, if that is sure; next_due_seconds
--   float8, when fewer than wanted; the inline messages as the columns of messages.sql, an array each (NULL: none).
--   No row: nothing was claimed, and claim.sql has to try, because there are other priorities or nothing may be claimed.
-- Locks: the jobs taken, skipping jobs that other transactions have locked. Index: pulljobs_job_claim; the update is HOT.
WITH consumer AS MATERIALIZED (
    SELECT consumer.id, coalesce(%(lease_duration)s::interval, consumer.lease_duration) AS lease_duration, clock.now
    FROM (SELECT clock_timestamp() AS now OFFSET 0) AS clock
    CROSS JOIN pulljobs_consumer AS consumer
    JOIN pulljobs_channel AS channel ON channel.id = consumer.channel_id
    WHERE consumer.id = %(consumer_id)s::bigint
        AND consumer.deleted_at IS NULL
        AND (consumer.type = 'push') = (%(via)s::text = 'push')
        AND greatest(consumer.paused_until, channel.paused_until, consumer.throttled_until, now) = now
        AND NOT consumer.exclusive_keys
        AND consumer.max_in_flight IS NULL
        AND consumer.rate_per_second IS NULL
        AND consumer.limit_group_id IS NULL
        AND NOT consumer.takes_turns
        -- In the order of the index, of which these see the ends: EXISTS may scan the table.
        AND (
            SELECT id
            FROM pulljobs_job
            WHERE consumer_id = %(consumer_id)s::bigint AND priority > %(priority)s::int
            ORDER BY priority DESC, available_at, id
            LIMIT 1
        ) IS NULL
        AND (
            SELECT id
            FROM pulljobs_job
            WHERE consumer_id = %(consumer_id)s::bigint AND priority < %(priority)s::int
            ORDER BY priority DESC, available_at, id
            LIMIT 1
        ) IS NULL
),
pick AS MATERIALIZED (
    SELECT job.id, job.message_id, job.available_at, job.retry_count, job.deliveries, job.suspect
    FROM consumer
    CROSS JOIN LATERAL (
        SELECT id, message_id, available_at, retry_count, deliveries, suspect
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = %(priority)s::int
            AND (available_at, id) > (%(mark_at)s::timestamptz, %(mark_id)s::bigint)
            AND available_at <= consumer.now
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT %(wanted)s::int
        FOR UPDATE SKIP LOCKED
    ) AS job
),
taken AS MATERIALIZED (
    SELECT
        count(*)::int AS jobs,
        count(*) < %(wanted)s::int OR %(wanted)s::int <= 50 AS sure,
        array_agg(id) AS ids,
        max(available_at) AS last_at,
        array_agg(message_id) AS message_ids,
        bool_and(retry_count = 0 AND deliveries = 0 AND NOT suspect) AS fresh
    FROM pick
),
lease AS (
    INSERT INTO pulljobs_lease (
        lease_token, consumer_id, node_id, via, claimed_at, leased_until, hard_end, job_ids
    )
    SELECT
        gen_random_uuid(),
        consumer.id,
        %(node_id)s::uuid,
        %(via)s::text,
        now,
        now + lease_duration,
        now + greatest(lease_duration, %(max_lease)s::interval),
        taken.ids
    FROM consumer, taken
    WHERE taken.jobs > 0
    RETURNING lease_token, leased_until, claimed_at, pg_current_xact_id() AS xid
),
claimed AS (
    UPDATE pulljobs_job
    SET
        state = 'INFLIGHT',
        lease_token = (SELECT lease_token FROM lease),
        deliveries = deliveries + 1,
        first_claimed_at = coalesce(first_claimed_at, (SELECT claimed_at FROM lease))
    WHERE id = ANY((SELECT ids FROM taken)::bigint[]) AND state = 'QUEUED'
),
passed AS MATERIALIZED (
    -- The first job that was seen QUEUED and could not be locked: see claim.sql. Large full claims skip this, because it
    -- takes a fifth of their time.
    SELECT job.available_at, job.id
    FROM taken
    CROSS JOIN LATERAL (
        SELECT available_at, id
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = %(priority)s::int
            AND (available_at, id) > (%(mark_at)s::timestamptz, %(mark_id)s::bigint)
            AND (available_at, id) < (taken.last_at, taken.ids[taken.jobs])
            AND state = 'QUEUED'
            AND id NOT IN (SELECT unnest(ids) FROM taken)
        ORDER BY available_at, id
        LIMIT 1
    ) AS job
    WHERE taken.sure
)
SELECT
    now() AS started_at,
    pg_current_snapshot()::text AS snapshot,
    lease.xid::text::bigint AS xid,
    lease.lease_token,
    lease.leased_until,
    taken.ids AS job_ids,
    taken.message_ids,
    CASE WHEN NOT taken.fresh THEN (SELECT array_agg(retry_count) FROM pick) END AS retry_counts,
    CASE WHEN NOT taken.fresh THEN (SELECT array_agg(deliveries + 1) FROM pick) END AS deliveries,
    CASE WHEN NOT taken.fresh THEN (SELECT array_agg(suspect) FROM pick) END AS suspects,
    -- Before the passed job, the claim has left no job.
    coalesce(passed.available_at, taken.last_at) AS reached_at,
    coalesce(passed.id - 1, taken.ids[taken.jobs]) AS reached_id,
    taken.sure,
    CASE WHEN taken.jobs < %(wanted)s::int THEN (
        SELECT extract(epoch FROM min(available_at) - clock_timestamp())::float8
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = %(priority)s::int
            AND available_at > consumer.now
            AND state = 'QUEUED'
    ) END AS next_due_seconds,
    message.*
FROM consumer
CROSS JOIN taken
LEFT JOIN lease ON true
LEFT JOIN passed ON true
CROSS JOIN LATERAL (
    -- The columns of messages.sql: for a few jobs this takes less time than a round trip.
    SELECT
        array_agg(id) AS inline_ids,
        array_agg(payload) AS payloads,
        array_agg(content_type) AS content_types,
        array_agg(CASE WHEN pg_column_size(headers) > 8 THEN headers END) AS given_headers,
        array_agg(timestamptz_send(published_at)) AS published,
        array_agg(client_message_id) AS client_message_ids,
        array_agg(key) AS keys
    FROM pulljobs_message
    WHERE taken.jobs <= %(few)s::int
        AND id = ANY(taken.message_ids)
        AND id >= %(lowest)s::bigint
        AND id <= %(highest)s::bigint
) AS message
