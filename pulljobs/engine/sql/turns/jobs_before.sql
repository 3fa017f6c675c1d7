-- Count the jobs that claims by key take before a job, if no further jobs are published: those of its key, and in its rounds those of others.
-- Event: none; to explain.
-- Parameters: consumer_id bigint, job_id bigint (a waiting job of it), most_keys int, most_jobs int (of each key), burst float8 (of a rate: no job takes more tokens).
-- Returns one row: key_jobs int8, key_cost float8 (of its key alone); jobs int8, cost float8 (with those of other keys); is_least boolean
--   (a count ended at its limit). No row: the consumer has no such job.
-- Locks: none. Index: primary keys, flow key, pulljobs_flow_key_turn, pulljobs_job_turn.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
job AS MATERIALIZED (
    SELECT job.id, coalesce(job.turn_key, '') AS key, job.priority, job.available_at, consumer.fair_by_key
    FROM pulljobs_job AS job
    JOIN pulljobs_consumer AS consumer ON consumer.id = job.consumer_id
    WHERE job.id = %(job_id)s::bigint AND job.consumer_id = %(consumer_id)s::bigint
),
mine AS MATERIALIZED (
    SELECT count(*) AS jobs, coalesce(sum(least(cost, %(burst)s::float8)), 0) AS cost
    FROM (
        SELECT coalesce(waiting.cost, 1) AS cost
        FROM job
        CROSS JOIN LATERAL (
            SELECT cost
            FROM pulljobs_job
            WHERE consumer_id = %(consumer_id)s::bigint
                AND turn_key = job.key
                AND priority >= job.priority
                AND (priority > job.priority OR (available_at, id) < (job.available_at, job.id))
                AND available_at <= (SELECT now FROM clock)
                AND reason IS NULL
                AND state = 'QUEUED'
            LIMIT %(most_jobs)s::int
        ) AS waiting
    ) AS before
),
own AS MATERIALIZED (
    -- A key without a turn comes behind all others.
    SELECT
        coalesce(row.turn_rank, 0) AS turn_rank,
        coalesce(row.turn_at, 'infinity') AS turn_at,
        job.key,
        CASE
            WHEN coalesce(row.owed, 0) = 0 THEN mine.jobs / coalesce(row.weight, 1)
            WHEN mine.jobs < row.owed THEN 0
            ELSE 1 + (mine.jobs - row.owed) / row.weight
        END AS rounds
    FROM job
    CROSS JOIN mine
    LEFT JOIN pulljobs_flow_key AS row ON row.consumer_id = %(consumer_id)s::bigint AND row.key = job.key
),
other AS MATERIALIZED (
    SELECT
        row.key,
        own.rounds * row.weight + CASE
            WHEN (-row.turn_rank, row.turn_at, row.key) > (-own.turn_rank, own.turn_at, own.key) THEN 0
            WHEN row.owed > 0 THEN row.owed
            ELSE row.weight
        END AS jobs
    FROM own
    CROSS JOIN LATERAL (
        SELECT key, weight, owed, turn_rank, turn_at
        FROM pulljobs_flow_key
        WHERE consumer_id = %(consumer_id)s::bigint AND turn_at IS NOT NULL AND key <> own.key
        ORDER BY turn_rank DESC, turn_at, key
        LIMIT %(most_keys)s::int
    ) AS row
),
others AS MATERIALIZED (
    SELECT count(*) AS jobs, coalesce(sum(least(coalesce(waiting.cost, 1), %(burst)s::float8)), 0) AS cost
    FROM other
    CROSS JOIN job
    CROSS JOIN LATERAL (
        SELECT cost
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND turn_key = other.key
            AND (job.fair_by_key OR priority >= job.priority)
            AND available_at <= (SELECT now FROM clock)
            AND reason IS NULL
            AND state = 'QUEUED'
        ORDER BY priority DESC, available_at, id
        LIMIT least(other.jobs, %(most_jobs)s::int)
    ) AS waiting
)
SELECT
    mine.jobs AS key_jobs,
    mine.cost AS key_cost,
    mine.jobs + others.jobs AS jobs,
    mine.cost + others.cost AS cost,
    mine.jobs >= %(most_jobs)s::int OR (SELECT count(*) FROM other) >= %(most_keys)s::int AS is_least
FROM job
CROSS JOIN mine
CROSS JOIN others
