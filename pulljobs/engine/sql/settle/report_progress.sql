-- Record the progress of jobs under their leases.
-- Event: none.
-- Parameters: arrays of one length, in ascending order of the jobs: job_ids bigint[], lease_tokens uuid[], done float8[], totals float8[]
--   (NULL: not known), notes text[].
-- Returns: nothing. What is not held under that lease_token is left out.
-- Locks: the rows of the progress, in order of the job. Index: job and progress primary key.
INSERT INTO pulljobs_progress AS known (job_id, done, total, note, reported_at)
SELECT job.id, offered.done, offered.total, offered.note, clock_timestamp()
FROM unnest(
    %(job_ids)s::bigint[], %(lease_tokens)s::uuid[], %(done)s::float8[], %(totals)s::float8[], %(notes)s::text[]
) AS offered (job_id, lease_token, done, total, note)
CROSS JOIN LATERAL (
    -- One by one: a join might scan the table.
    SELECT id
    FROM pulljobs_job
    WHERE id = offered.job_id AND lease_token = offered.lease_token AND state = 'INFLIGHT'
    LIMIT 1
) AS job
ORDER BY job.id
ON CONFLICT (job_id) DO UPDATE
SET done = excluded.done, total = excluded.total, note = excluded.note, reported_at = excluded.reported_at
