-- Record a run at its first claim, and return it with its steps.
-- Event: none; after a claim.
-- Parameters: run_id bigint, workflow text, version int (of the present code).
-- Returns: version, rounds, is_continued, input of the run, and of each step, in order of the position: name (NULL: there is none), number,
--   position, kind, function, is_ended, result, failure, batch_id, children, seconds_left (until it is due; NULL: it is never due).
--   No row: another session is recording the run; run it again.
-- Locks: none. Index: run and step primary key.
WITH made AS (
    INSERT INTO pulljobs_run (id, workflow, version)
    VALUES (%(run_id)s::bigint, %(workflow)s::text, %(version)s::int)
    ON CONFLICT (id) DO NOTHING
    RETURNING version, rounds, input
),
run AS (
    SELECT version, rounds, input
    FROM made
    UNION ALL
    SELECT version, rounds, input
    FROM pulljobs_run
    WHERE id = %(run_id)s::bigint
)
SELECT
    run.version,
    run.rounds,
    run.input IS NOT NULL AS is_continued,
    run.input -> 0 AS input,
    step.name,
    step.number,
    step.position,
    step.kind,
    step.function,
    step.ended_at IS NOT NULL AS is_ended,
    step.result,
    step.failure,
    step.batch_id,
    step.children,
    date_part('epoch', step.due_at - clock_timestamp()) AS seconds_left
FROM run
LEFT JOIN pulljobs_step AS step ON step.run_id = %(run_id)s::bigint
ORDER BY step.position
