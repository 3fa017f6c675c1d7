-- Count a delivery of the jobs of a slice of a batch, because Spark reads the slice again.
-- Event: none; the jobs stay leased.
-- Parameters: batch_id bigint, lease_token uuid, first int, last int (places, from 1).
-- Returns: nothing.
-- Locks: the jobs, in the order of their ids. Index: stream batch lease_token and job primary key.
WITH held AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = ANY(ARRAY(
            SELECT unnest(job_ids[%(first)s::int:%(last)s::int])
            FROM pulljobs_stream_batch
            WHERE id = %(batch_id)s::bigint AND lease_token = %(lease_token)s::uuid AND state = 'open'
        ))
        AND lease_token = %(lease_token)s::uuid
        AND state = 'INFLIGHT'
    ORDER BY id
    FOR UPDATE
)
UPDATE pulljobs_job AS job
SET deliveries = deliveries + 1
FROM held
WHERE job.id = held.id
