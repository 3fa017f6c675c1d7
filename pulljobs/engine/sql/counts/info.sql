-- Tell how a consumer stands, all of it from one snapshot, so that the counts add up.
-- Event: none.
-- Parameters: consumer_id bigint, cap int: no count goes above it.
-- Returns one row: now; ready, delayed, blocked (behind their keys), in_flight, redelivered (of those: claimed more than once), dead,
--   delivered (of the newest settlements of all consumers, cap of them) and settlements (how many these were); oldest_ready_seconds
--   float8; waiting (pulls over HTTP), paused_until; lowest_live bigint (of those counted but dead), newest_settled bigint (job).
-- Locks: none. Index: pulljobs_job_claim, pulljobs_job_key, pulljobs_job_dead, primary keys; for a count not many more than cap
--   rows are read.
WITH RECURSIVE clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
found (priority) AS (
    (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
        ORDER BY priority DESC
        LIMIT 1
    )
    UNION ALL
    SELECT job.priority
    FROM found
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint AND priority < found.priority
        ORDER BY priority DESC
        LIMIT 1
    ) AS job
),
ready AS MATERIALIZED (
    SELECT job.*
    FROM found
    CROSS JOIN LATERAL (
        SELECT id, deliveries, available_at
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = found.priority
            AND available_at <= (SELECT now FROM clock)
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT %(cap)s::int
    ) AS job
    LIMIT %(cap)s::int
),
delayed AS MATERIALIZED (
    SELECT job.*
    FROM found
    CROSS JOIN LATERAL (
        SELECT id, deliveries
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority = found.priority
            AND available_at > (SELECT now FROM clock)
            AND state = 'QUEUED'
        ORDER BY available_at, id
        LIMIT %(cap)s::int
    ) AS job
    LIMIT %(cap)s::int
),
blocked AS MATERIALIZED (
    SELECT id, deliveries
    FROM pulljobs_job
    WHERE consumer_id = %(consumer_id)s::bigint
        AND key IS NOT NULL
        AND reason IS NULL
        AND available_at IS NULL
        AND state = 'QUEUED'
    ORDER BY key, id
    LIMIT %(cap)s::int
),
in_flight AS MATERIALIZED (
    SELECT job.*
    FROM pulljobs_lease AS lease
    CROSS JOIN unnest(lease.job_ids) AS member (job_id)
    CROSS JOIN LATERAL (
        SELECT id, deliveries
        FROM pulljobs_job
        WHERE id = member.job_id AND lease_token = lease.lease_token
        LIMIT 1
    ) AS job
    WHERE lease.consumer_id = %(consumer_id)s::bigint
    LIMIT %(cap)s::int
),
dead AS (
    SELECT
    FROM pulljobs_job
    WHERE consumer_id = %(consumer_id)s::bigint AND reason IS NOT NULL
    ORDER BY id
    LIMIT %(cap)s::int
),
live AS MATERIALIZED (
    SELECT id, deliveries FROM ready
    UNION ALL
    SELECT * FROM delayed
    UNION ALL
    SELECT * FROM blocked
    UNION ALL
    SELECT * FROM in_flight
),
newest AS MATERIALIZED (
    SELECT consumer_id, state, job_id
    FROM pulljobs_archived_job
    ORDER BY id DESC
    LIMIT %(cap)s::int
)
SELECT
    clock.now,
    (SELECT count(*) FROM ready) AS ready,
    (SELECT count(*) FROM delayed) AS delayed,
    (SELECT count(*) FROM blocked) AS blocked,
    (SELECT count(*) FROM in_flight) AS in_flight,
    (SELECT count(*) FROM live WHERE deliveries > 1) AS redelivered,
    (SELECT count(*) FROM dead) AS dead,
    (SELECT count(*) FROM newest WHERE consumer_id = consumer.id AND state = 'DELIVERED') AS delivered,
    (SELECT count(*) FROM newest) AS settlements,
    extract(epoch FROM clock.now - (SELECT min(available_at) FROM ready))::float8 AS oldest_ready_seconds,
    (
        SELECT coalesce(sum(waiting), 0)
        FROM pulljobs_pull_waiter
        WHERE consumer_id = consumer.id AND waiting_until > clock.now
    ) AS waiting,
    greatest(consumer.paused_until, channel.paused_until) AS paused_until,
    (SELECT min(id) FROM live) AS lowest_live,
    (SELECT max(job_id) FROM newest WHERE consumer_id = consumer.id) AS newest_settled
FROM clock
CROSS JOIN pulljobs_consumer AS consumer
JOIN pulljobs_channel AS channel ON channel.id = consumer.channel_id
WHERE consumer.id = %(consumer_id)s::bigint
