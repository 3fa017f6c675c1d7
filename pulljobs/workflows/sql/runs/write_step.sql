-- Write a step of a run under its lease.
-- Event: none.
-- Parameters: run_id bigint, lease_token uuid, name text, number, position int, kind, function text, seconds float8 (since the step began),
--   is_ended boolean (false: its children run), result, failure jsonb (NULL: none), batch_id bigint, children bigint[] (NULL: none).
-- Returns: result, as a replay will find it: jsonb has an order of keys of its own. No row: the lease is lost or the step has ended, and nothing was written.
-- Locks: the job, FOR SHARE, waiting: whatever takes the lease changes the row, so it comes before this statement or after its commit.
--   Index: job and step primary key.
WITH held AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = %(run_id)s::bigint AND lease_token = %(lease_token)s::uuid AND state = 'INFLIGHT'
    FOR SHARE
)
INSERT INTO pulljobs_step AS step (
    run_id, name, number, position, kind, function, started_at, ended_at, result, failure, batch_id, children
)
SELECT
    held.id, %(name)s::text, %(number)s::int, %(position)s::int, %(kind)s::text, %(function)s::text,
    clock_timestamp() - make_interval(secs => %(seconds)s::float8),
    CASE WHEN %(is_ended)s::boolean THEN clock_timestamp() END,
    %(result)s::jsonb, %(failure)s::jsonb, %(batch_id)s::bigint, %(children)s::bigint[]
FROM held
ON CONFLICT (run_id, name, number) DO UPDATE
SET
    ended_at = excluded.ended_at,
    result = excluded.result,
    failure = excluded.failure
WHERE step.ended_at IS NULL
RETURNING result
