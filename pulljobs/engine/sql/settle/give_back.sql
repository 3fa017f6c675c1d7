-- Give the tokens of released jobs back to the buckets of their consumers and of the groups of these.
-- Event: none; after a release, in the transaction of finish.sql, whose attempts it reads: a job gives its tokens back once.
-- Parameters: job_ids bigint[], lease_tokens uuid[] (of one length), of jobs that this transaction released.
-- Returns: nothing.
-- Locks: the buckets, in order of consumer and group, waiting for claims. Index: job, consumer and bucket primary key, attempt job_id.
WITH released AS MATERIALIZED (
    SELECT job.consumer_id, job.cost, attempt.claimed_at
    FROM unnest(%(job_ids)s::bigint[], %(lease_tokens)s::uuid[]) AS offered (job_id, lease_token)
    CROSS JOIN LATERAL (
        -- One by one: a join might scan the table; here and below.
        SELECT consumer_id, coalesce(cost, 1) AS cost
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
member AS MATERIALIZED (
    SELECT consumer.id, consumer.limit_group_id
    FROM (SELECT DISTINCT consumer_id FROM released) AS known
    CROSS JOIN LATERAL (
        SELECT id, limit_group_id
        FROM pulljobs_consumer
        WHERE id = known.consumer_id
        LIMIT 1
    ) AS consumer
),
paid AS MATERIALIZED (
    SELECT released.consumer_id, 0::bigint AS group_id, released.cost, released.claimed_at
    FROM released
    UNION ALL
    SELECT 0, member.limit_group_id, released.cost, released.claimed_at
    FROM released
    JOIN member ON member.id = released.consumer_id AND member.limit_group_id IS NOT NULL
),
bucket AS MATERIALIZED (
    SELECT bucket.*
    FROM (SELECT DISTINCT consumer_id, group_id FROM paid ORDER BY consumer_id, group_id) AS charged
    CROSS JOIN LATERAL (
        SELECT *
        FROM pulljobs_flow_bucket
        WHERE consumer_id = charged.consumer_id AND group_id = charged.group_id
        FOR NO KEY UPDATE
    ) AS bucket
),
given AS MATERIALIZED (
    SELECT bucket.consumer_id, bucket.group_id, sum(least(paid.cost, bucket.burst)) AS tokens
    FROM bucket
    JOIN paid USING (consumer_id, group_id)
    WHERE paid.claimed_at >= bucket.charged_since
        -- The next window is full without these tokens.
        AND (
            bucket.window_seconds IS NULL
            OR paid.claimed_at >= date_bin(make_interval(secs => bucket.window_seconds), bucket.filled_at, timestamptz 'epoch')
        )
    GROUP BY bucket.consumer_id, bucket.group_id
)
UPDATE pulljobs_flow_bucket AS bucket
SET tokens = bucket.tokens + given.tokens
FROM given
WHERE bucket.consumer_id = given.consumer_id
    AND bucket.group_id = given.group_id
    -- Else a plan made while the table is empty may begin with all of it.
    AND bucket.consumer_id = ANY(ARRAY(SELECT consumer_id FROM given))
