-- Return the consumers that live jobs belong to.
-- Event: none.
-- Parameters: job_ids bigint[].
-- Returns: id, consumer_id, has_key boolean; jobs that are not live are left out.
-- Locks: none. Index: primary key.
SELECT id, consumer_id, key IS NOT NULL OR turn_key IS NOT NULL AS has_key
FROM pulljobs_job
WHERE id = ANY(%(job_ids)s::bigint[])
