-- Lock the key of a job that is asked for by its id.
-- Event: none; a statement before take.sql, which then sees what was claimed before the lock.
-- Parameters: consumer_id bigint, job_id bigint.
-- Returns: nothing.
-- Locks: the key's row, which is made if it is missing. Index: job primary key, exclusive key.
INSERT INTO pulljobs_exclusive_key AS row (consumer_id, key)
SELECT consumer_id, key
FROM pulljobs_job
WHERE id = %(job_id)s::bigint AND consumer_id = %(consumer_id)s::bigint AND key IS NOT NULL
ON CONFLICT (consumer_id, key) DO UPDATE
SET holder = row.holder
