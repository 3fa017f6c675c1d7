-- Consume the oldest signal of a name as the result of a wait, or end a wait that is overdue without one.
-- Event: none.
-- Parameters: run_id bigint, lease_token uuid, name text, number, position int (of the wait), is_over boolean (true: its time is over).
-- Returns: is_taken, payload (the JSON of the signal); no row: the lease is lost, and nothing was written.
-- Locks: the job, FOR SHARE, waiting, as write_step.sql has it; then the signal. Index: signal pulljobs_signal_waiting, job, run and step primary key.
WITH held AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = %(run_id)s::bigint AND lease_token = %(lease_token)s::uuid AND state = 'INFLIGHT'
    FOR SHARE
),
oldest AS MATERIALIZED (
    SELECT signal.id, signal.payload
    FROM held
    CROSS JOIN LATERAL (
        SELECT id, payload
        FROM pulljobs_signal
        WHERE run_id = held.id AND name = %(name)s::text AND consumed_at IS NULL
        ORDER BY id
        LIMIT 1
        FOR UPDATE
    ) AS signal
),
consumed AS (
    UPDATE pulljobs_signal
    SET consumed_at = clock_timestamp(), consumed_by = %(number)s::int, is_new = false
    WHERE id = (SELECT id FROM oldest)
),
ended AS MATERIALIZED (
    SELECT held.id AS run_id, oldest.id IS NOT NULL AS is_taken, oldest.payload
    FROM held
    LEFT JOIN oldest ON true
    WHERE oldest.id IS NOT NULL OR %(is_over)s::boolean
),
step AS (
    INSERT INTO pulljobs_step AS step (
        run_id, name, number, position, kind, function, started_at, ended_at, result, failure
    )
    SELECT
        run_id, %(name)s::text, %(number)s::int, %(position)s::int, 'wait', '', clock_timestamp(), clock_timestamp(),
        payload, CASE WHEN NOT is_taken THEN '{"timeout": true}'::jsonb END
    FROM ended
    ON CONFLICT (run_id, name, number) DO UPDATE
    SET ended_at = excluded.ended_at, result = excluded.result, failure = excluded.failure
    WHERE step.ended_at IS NULL
),
awake AS (
    UPDATE pulljobs_run
    SET waiting_for = NULL
    WHERE id = (SELECT run_id FROM ended) AND waiting_for IS NOT NULL
)
SELECT oldest.id IS NOT NULL AS is_taken, oldest.payload
FROM held
LEFT JOIN oldest ON true
