-- Record a run at its first claim, and return it with its steps. A wait in which it is suspended ends with the oldest signal, if there is one.
-- Event: none; after a claim.
-- Parameters: run_id, message_id bigint, lease_token uuid, workflow text, version, oldest_version int (of the present code, which leaves signals to other versions).
-- Returns: is_renewed (true: it began for another message, see renew_run.sql), version, rounds, is_continued, input of the run, and of each step, in order of the position: name (NULL: there is none), number,
--   position, kind, function, is_ended, result, failure, batch_id, children, seconds_left (until it is due; NULL: it is never due), is_taken (true: the
--   wait that ends here).
--   No row: another session is recording the run; run it again.
-- Locks: if there is a signal, the job, FOR SHARE, waiting, as take_signal.sql has it, then the signal. Index: run, step, job and signal primary key, signal
--   pulljobs_signal_waiting.
WITH made AS (
    INSERT INTO pulljobs_run (id, message_id, workflow, version)
    VALUES (%(run_id)s::bigint, %(message_id)s::bigint, %(workflow)s::text, %(version)s::int)
    ON CONFLICT (id) DO NOTHING
    RETURNING message_id, version, rounds, input
),
run AS (
    SELECT message_id, version, rounds, input
    FROM made
    UNION ALL
    SELECT message_id, version, rounds, input
    FROM pulljobs_run
    WHERE id = %(run_id)s::bigint
),
pending AS MATERIALIZED (
    SELECT step.name, step.number
    FROM pulljobs_run AS run
    JOIN pulljobs_step AS step ON step.run_id = run.id AND step.name = run.waiting_for
    WHERE run.id = %(run_id)s::bigint
        AND coalesce(run.message_id, %(message_id)s::bigint) = %(message_id)s::bigint
        AND run.version BETWEEN %(oldest_version)s::int AND %(version)s::int
        AND step.kind = 'wait'
        AND step.ended_at IS NULL
    ORDER BY step.number
    LIMIT 1
),
oldest AS MATERIALIZED (
    SELECT signal.id
    FROM pending
    CROSS JOIN LATERAL (
        SELECT id
        FROM pulljobs_signal
        WHERE run_id = %(run_id)s::bigint AND name = pending.name AND consumed_at IS NULL
        ORDER BY id
        LIMIT 1
    ) AS signal
),
held AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = (SELECT %(run_id)s::bigint FROM oldest) AND lease_token = %(lease_token)s::uuid AND state = 'INFLIGHT'
    FOR SHARE
),
consumed AS (
    UPDATE pulljobs_signal
    SET consumed_at = clock_timestamp(), consumed_by = (SELECT number FROM pending), is_new = false
    WHERE id = (SELECT oldest.id FROM oldest, held)
    RETURNING run_id, payload
),
taken AS (
    UPDATE pulljobs_step
    SET ended_at = clock_timestamp(), result = (SELECT payload FROM consumed)
    WHERE run_id = (SELECT run_id FROM consumed) AND name = (SELECT name FROM pending) AND number = (SELECT number FROM pending)
    RETURNING name, number, result
),
awake AS (
    UPDATE pulljobs_run
    SET waiting_for = NULL
    WHERE id = (SELECT run_id FROM consumed)
)
SELECT
    run.message_id <> %(message_id)s::bigint IS TRUE AS is_renewed,
    run.version,
    run.rounds,
    run.input IS NOT NULL AS is_continued,
    run.input -> 0 AS input,
    step.name,
    step.number,
    step.position,
    step.kind,
    step.function,
    step.ended_at IS NOT NULL OR taken.number IS NOT NULL AS is_ended,
    coalesce(step.result, taken.result) AS result,
    step.failure,
    step.batch_id,
    step.children,
    date_part('epoch', step.due_at - clock_timestamp()) AS seconds_left,
    taken.number IS NOT NULL AS is_taken
FROM run
LEFT JOIN pulljobs_step AS step ON step.run_id = %(run_id)s::bigint
LEFT JOIN taken ON taken.name = step.name AND taken.number = step.number
ORDER BY step.position
