WITH settled AS (
    DELETE FROM raw_flow_job
    WHERE id = ANY(%(ids)s::bigint[]) AND state = 1 AND lease_token IS NOT DISTINCT FROM %(lease_token)s::uuid
    RETURNING *
),
lease AS (
    DELETE FROM raw_flow_lease
    WHERE lease_token = %(lease_token)s::uuid
    RETURNING claimed_at
),
archived AS (
    INSERT INTO pulljobs_archived_job (
        job_id, message_id, consumer_id, created_at, claimed_at, settled_at, retry_count, deliveries,
        lease_token, state, error
    )
    SELECT
        -- The error has the key, for the checks of the prototypes.
        id, message_id, consumer_id, to_timestamp((id >> 22) / 1000.0 + 1577836800), lease.claimed_at,
        clock_timestamp(), retry_count, deliveries, lease_token, 'DELIVERED', key
    FROM settled, lease
)
SELECT id FROM settled
