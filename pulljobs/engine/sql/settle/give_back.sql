-- Give the tokens of released jobs back to the buckets of their consumers.
-- Event: none; after a release, in the transaction of finish.sql, whose attempts it reads: a job gives its token back once.
-- Parameters: job_ids bigint[], lease_tokens uuid[] (of one length), of jobs that this transaction released.
-- Returns: nothing.
-- Locks: the buckets, in order of the consumer, waiting for claims. Index: job and bucket primary key, attempt job_id.
WITH released AS MATERIALIZED (
    SELECT job.consumer_id, attempt.claimed_at
    FROM unnest(%(job_ids)s::bigint[], %(lease_tokens)s::uuid[]) AS offered (job_id, lease_token)
    CROSS JOIN LATERAL (
        -- One by one: a join might scan the table; here and below.
        SELECT consumer_id
        FROM pulljobs_job
        WHERE id = offered.job_id
        LIMIT 1
    ) AS job
    CROSS JOIN LATERAL (
        SELECT claimed_at
        FROM pulljobs_attempt
        WHERE job_id = offered.job_id AND lease_token = offered.lease_token AND event = 'release'
        LIMIT 1
    ) AS attempt
),
bucket AS MATERIALIZED (
    SELECT consumer_id, charged_since
    FROM pulljobs_flow_bucket
    WHERE consumer_id = ANY(ARRAY(SELECT consumer_id FROM released))
    ORDER BY consumer_id
    FOR NO KEY UPDATE
),
given AS MATERIALIZED (
    SELECT bucket.consumer_id, count(*) AS tokens
    FROM bucket
    JOIN released ON released.consumer_id = bucket.consumer_id AND released.claimed_at >= bucket.charged_since
    GROUP BY bucket.consumer_id
)
UPDATE pulljobs_flow_bucket AS bucket
SET tokens = bucket.tokens + given.tokens
FROM given
WHERE bucket.consumer_id = given.consumer_id
    -- Else a plan made while the table is empty may begin with all of it.
    AND bucket.consumer_id = ANY(ARRAY(SELECT consumer_id FROM given))
