-- Return which of these live jobs belong to a consumer.
-- Event: none.
-- Parameters: consumer_id bigint, job_ids bigint[].
-- Returns: id, owned boolean; jobs that are not live do not come back.
-- Locks: none. Index: primary key.
SELECT id, consumer_id = %(consumer_id)s::bigint AS owned
FROM pulljobs_job
WHERE id = ANY(%(job_ids)s::bigint[])
