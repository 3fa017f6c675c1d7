-- Give the tokens of released jobs back to the buckets of their keys.
-- Event: none; after a release, in the transaction of finish.sql, whose attempts it reads: a job gives its token back once.
-- Parameters: job_ids bigint[], lease_tokens uuid[] (of one length), of jobs that this transaction released.
-- Returns: nothing.
-- Locks: the rows of the keys, in order, waiting for claims. Index: job primary key, attempt job_id, flow key.
WITH released AS MATERIALIZED (
    SELECT job.consumer_id, job.turn_key AS key, attempt.claimed_at, least(coalesce(job.cost, 1), consumer.burst) AS tokens
    FROM unnest(%(job_ids)s::bigint[], %(lease_tokens)s::uuid[]) AS offered (job_id, lease_token)
    CROSS JOIN LATERAL (
        -- One by one: a join might scan the table; here and below.
        SELECT consumer_id, turn_key, cost
        FROM pulljobs_job
        WHERE id = offered.job_id
        LIMIT 1
    ) AS job
    CROSS JOIN LATERAL (
        SELECT coalesce(rate_burst::float8, greatest(key_rate_per_second, 1)) AS burst
        FROM pulljobs_consumer
        WHERE id = job.consumer_id
        LIMIT 1
    ) AS consumer
    CROSS JOIN LATERAL (
        SELECT claimed_at
        FROM pulljobs_attempt
        WHERE job_id = offered.job_id AND lease_token = offered.lease_token AND event = 'release'
        LIMIT 1
    ) AS attempt
),
locked AS MATERIALIZED (
    SELECT row.*
    FROM (SELECT DISTINCT consumer_id, key FROM released ORDER BY consumer_id, key) AS asked
    CROSS JOIN LATERAL (
        SELECT consumer_id, key, charged_since
        FROM pulljobs_flow_key
        WHERE consumer_id = asked.consumer_id AND key = asked.key AND tokens IS NOT NULL
        FOR NO KEY UPDATE
    ) AS row
),
given AS MATERIALIZED (
    SELECT locked.consumer_id, locked.key, sum(released.tokens) AS tokens
    FROM locked
    JOIN released
        ON released.consumer_id = locked.consumer_id AND released.key = locked.key AND released.claimed_at >= locked.charged_since
    GROUP BY locked.consumer_id, locked.key
)
UPDATE pulljobs_flow_key AS row
SET
    tokens = row.tokens + given.tokens,
    -- The key may have waited for its next token.
    turn_at = CASE WHEN row.turn_at > clock_timestamp() THEN greatest(clock_timestamp(), row.throttled_until) ELSE row.turn_at END,
    writer = pg_current_xact_id()
FROM given
WHERE row.consumer_id = given.consumer_id AND row.key = given.key
    -- Else a plan made while the table is empty may begin with all of it.
    AND row.key = ANY(ARRAY(SELECT key FROM given))
