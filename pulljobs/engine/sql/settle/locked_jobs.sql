-- Lock jobs that are to be settled under their leases, and return those that another transaction has locked.
-- Event: none; settling the others is finish.sql, in the same transaction.
-- Parameters: job_ids bigint[], lease_tokens uuid[] (of these jobs, each once). Jobs under other tokens are not touched: they may be another consumer's.
-- Returns: id of each job that is held under one of the tokens and could not be locked.
-- Locks: the jobs, skipping those of other transactions. Index: primary key.
WITH free AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND lease_token = ANY(%(lease_tokens)s::uuid[])
    FOR UPDATE SKIP LOCKED
)
SELECT id
FROM pulljobs_job
WHERE id = ANY(%(job_ids)s::bigint[]) AND lease_token = ANY(%(lease_tokens)s::uuid[]) AND id NOT IN (SELECT id FROM free)
