-- Append the sum of a member of a batch that take.sql revives.
-- Event: revive; in the transaction of take.sql, which has the job locked.
-- Parameters: job_id bigint.
-- Returns: batch_id. No row: the job is no member.
-- Locks: none. Index: primary key.
INSERT INTO pulljobs_batch_sum (batch_id, dead, redriven)
SELECT batch_id, -1, 1
FROM pulljobs_job
WHERE id = %(job_id)s::bigint AND batch_id IS NOT NULL
RETURNING batch_id
