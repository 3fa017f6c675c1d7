WITH lease AS (
    DELETE FROM raw_array_lease
    WHERE lease_token = %(lease_token)s::uuid
    RETURNING lease_token, claimed_at, jobs
),
settled AS MATERIALIZED (
    SELECT job.*, lease.lease_token, lease.claimed_at
    FROM lease
    CROSS JOIN unnest(lease.jobs) AS job
),
archived AS (
    INSERT INTO pulljobs_archived_job (
        job_id, message_id, consumer_id, created_at, claimed_at, settled_at, retry_count, deliveries,
        lease_token, state
    )
    SELECT
        id, message_id, consumer_id, to_timestamp((id >> 22) / 1000.0 + 1577836800), claimed_at,
        clock_timestamp(), retry_count, deliveries + 1, lease_token, 'DELIVERED'
    FROM settled
)
SELECT id FROM settled
