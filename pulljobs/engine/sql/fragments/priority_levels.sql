-- Common table expressions that list the priorities of consumers that have jobs.
-- For a query WITH RECURSIVE. Gives consumer (id) and level (consumer_id, priority).
-- Parameters: consumer_ids bigint[].
-- Index: pulljobs_job_claim, entered once a priority.
consumer (id) AS MATERIALIZED (
    SELECT unnest(%(consumer_ids)s::bigint[])
),
level (consumer_id, priority) AS (
    SELECT consumer.id, job.priority
    FROM consumer
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = consumer.id
        ORDER BY priority DESC
        LIMIT 1
    ) AS job
    UNION ALL
    SELECT level.consumer_id, job.priority
    FROM level
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = level.consumer_id AND priority < level.priority
        ORDER BY priority DESC
        LIMIT 1
    ) AS job
)
