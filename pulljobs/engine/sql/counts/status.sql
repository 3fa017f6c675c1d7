-- Read the status of a consumer, all of it from one snapshot, so that the counts add up.
-- Event: none.
-- Parameters: consumer_ids bigint[] (one id), cap int: no count of a state exceeds it.
-- Returns one row: now; the counts of count_jobs.sql; delivered (among the newest settlements of all consumers, cap of them) and
--   settlements (how many these were); oldest_ready_seconds float8; waiting (pulls over HTTP); paused_until; lowest_live bigint (job);
--   newest_settled bigint (job). No row: no such consumer.
-- Locks: none. Index: see fragments/counted_jobs.sql; primary keys of the consumer, the channel and the archive.
WITH RECURSIVE ${counted_jobs},
newest AS MATERIALIZED (
    SELECT consumer_id, state, job_id
    FROM pulljobs_archived_job
    ORDER BY id DESC
    LIMIT %(cap)s::int
)
SELECT
    clock.now,
    counted.ready,
    counted.delayed,
    counted.blocked,
    counted.in_flight,
    counted.redelivered,
    counted.dead,
    (SELECT count(*) FROM newest WHERE consumer_id = counted.consumer_id AND state = 'DELIVERED') AS delivered,
    (SELECT count(*) FROM newest) AS settlements,
    extract(epoch FROM clock.now - counted.oldest_ready_at)::float8 AS oldest_ready_seconds,
    (
        SELECT coalesce(sum(waiting), 0)
        FROM pulljobs_pull_waiter
        WHERE consumer_id = counted.consumer_id AND waiting_until > clock.now
    ) AS waiting,
    greatest(registered.paused_until, channel.paused_until) AS paused_until,
    counted.lowest_live,
    (SELECT max(job_id) FROM newest WHERE consumer_id = counted.consumer_id) AS newest_settled
FROM clock
CROSS JOIN counted
CROSS JOIN LATERAL (
    SELECT channel_id, paused_until
    FROM pulljobs_consumer
    WHERE id = counted.consumer_id
    LIMIT 1
) AS registered
JOIN pulljobs_channel AS channel ON channel.id = registered.channel_id
