-- Common table expressions that count the jobs of consumers, in one snapshot and at a bounded cost.
-- For a query WITH RECURSIVE. Gives clock (now) and counted, a row for each consumer: see count_jobs.sql.
-- A job is blocked if it is QUEUED and has no available_at. A DEAD job has none either: with fewer than cap DEAD jobs, blocked
-- jobs are found among all jobs without a time, and otherwise among the jobs that have a key and are not DEAD.
-- Parameters: consumer_ids bigint[], cap int: no count of a state exceeds it.
-- Index: pulljobs_job_claim, pulljobs_job_key, pulljobs_job_dead, primary key; each count reads hardly more than cap rows, that of
-- blocked jobs twice as many.
clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
${priority_levels},
counted AS MATERIALIZED (
    SELECT
        consumer.id AS consumer_id,
        ready.jobs AS ready,
        delayed.jobs AS delayed,
        blocked.jobs AS blocked,
        in_flight.jobs AS in_flight,
        dead.jobs AS dead,
        blocked.is_least AS blocked_is_least,
        ready.redelivered + delayed.redelivered + blocked.redelivered + in_flight.redelivered AS redelivered,
        least(ready.lowest_id, delayed.lowest_id, blocked.lowest_id, in_flight.lowest_id) AS lowest_live,
        ends.oldest_ready_at,
        ends.oldest_queued_at,
        ends.newest_queued_at,
        in_flight.oldest_claimed_at,
        in_flight.newest_claimed_at
    FROM consumer
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, count(*) FILTER (WHERE deliveries > 1) AS redelivered, min(id) AS lowest_id
        FROM (
            SELECT job.*
            FROM level
            CROSS JOIN LATERAL (
                SELECT id, deliveries
                FROM pulljobs_job
                WHERE consumer_id = consumer.id
                    AND priority = level.priority
                    AND available_at <= (SELECT now FROM clock)
                    AND state = 'QUEUED'
                ORDER BY available_at, id
                LIMIT %(cap)s::int
            ) AS job
            WHERE level.consumer_id = consumer.id
            LIMIT %(cap)s::int
        ) AS job
    ) AS ready
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, count(*) FILTER (WHERE deliveries > 1) AS redelivered, min(id) AS lowest_id
        FROM (
            SELECT job.*
            FROM level
            CROSS JOIN LATERAL (
                SELECT id, deliveries
                FROM pulljobs_job
                WHERE consumer_id = consumer.id
                    AND priority = level.priority
                    AND available_at > (SELECT now FROM clock)
                    AND state = 'QUEUED'
                ORDER BY available_at, id
                LIMIT %(cap)s::int
            ) AS job
            WHERE level.consumer_id = consumer.id
            LIMIT %(cap)s::int
        ) AS job
    ) AS delayed
    CROSS JOIN LATERAL (
        SELECT
            count(*) AS jobs,
            count(*) FILTER (WHERE deliveries > 1) AS redelivered,
            min(id) AS lowest_id,
            min(claimed_at) AS oldest_claimed_at,
            max(claimed_at) AS newest_claimed_at
        FROM (
            SELECT job.*, lease.claimed_at
            FROM pulljobs_lease AS lease
            CROSS JOIN unnest(lease.job_ids) AS member (job_id)
            CROSS JOIN LATERAL (
                SELECT id, deliveries
                FROM pulljobs_job
                WHERE id = member.job_id AND lease_token = lease.lease_token
                LIMIT 1
            ) AS job
            WHERE lease.consumer_id = consumer.id
            LIMIT %(cap)s::int
        ) AS job
    ) AS in_flight
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs
        FROM (
            SELECT
            FROM pulljobs_job
            WHERE consumer_id = consumer.id AND reason IS NOT NULL
            ORDER BY id
            LIMIT %(cap)s::int
        ) AS job
    ) AS dead
    CROSS JOIN LATERAL (
        SELECT
            least(looked.blocked, %(cap)s::int) AS jobs,
            looked.jobs >= 2 * %(cap)s::int AND looked.blocked < %(cap)s::int AS is_least,
            looked.redelivered,
            looked.lowest_id
        FROM (
            SELECT
                count(*) AS jobs,
                count(*) FILTER (WHERE available_at IS NULL AND state = 'QUEUED') AS blocked,
                count(*) FILTER (WHERE available_at IS NULL AND state = 'QUEUED' AND deliveries > 1) AS redelivered,
                min(id) FILTER (WHERE available_at IS NULL AND state = 'QUEUED') AS lowest_id
            FROM (
                (
                    SELECT job.*
                    FROM level
                    CROSS JOIN LATERAL (
                        SELECT id, deliveries, available_at, state
                        FROM pulljobs_job
                        WHERE consumer_id = consumer.id
                            AND priority = level.priority
                            AND available_at IS NULL
                        ORDER BY id
                        LIMIT 2 * %(cap)s::int
                    ) AS job
                    WHERE level.consumer_id = consumer.id AND dead.jobs < %(cap)s::int
                    LIMIT 2 * %(cap)s::int
                )
                UNION ALL
                (
                    SELECT id, deliveries, available_at, state
                    FROM pulljobs_job
                    WHERE consumer_id = consumer.id
                        AND key IS NOT NULL
                        AND reason IS NULL
                        AND dead.jobs >= %(cap)s::int
                    ORDER BY key, id
                    LIMIT 2 * %(cap)s::int
                )
            ) AS job
        ) AS looked
    ) AS blocked
    CROSS JOIN LATERAL (
        SELECT
            min(first.available_at) FILTER (WHERE first.available_at <= (SELECT now FROM clock)) AS oldest_ready_at,
            min(first.available_at) AS oldest_queued_at,
            max(last.available_at) AS newest_queued_at
        FROM level
        CROSS JOIN LATERAL (
            SELECT available_at
            FROM pulljobs_job
            WHERE consumer_id = consumer.id
                AND priority = level.priority
                AND available_at <= 'infinity'
                AND state = 'QUEUED'
            ORDER BY available_at, id
            LIMIT 1
        ) AS first
        CROSS JOIN LATERAL (
            SELECT available_at
            FROM pulljobs_job
            WHERE consumer_id = consumer.id
                AND priority = level.priority
                AND available_at <= 'infinity'
                AND state = 'QUEUED'
            ORDER BY available_at DESC, id DESC
            LIMIT 1
        ) AS last
        WHERE level.consumer_id = consumer.id
    ) AS ends
)
