-- Check a page of runs for broken invariants. It only reads.
-- Event: none.
-- Parameters: after bigint (id of the last run of the page before), wanted int, age interval (younger signals may still wake their runs).
-- Returns, of one row a run: id, and is_woken (false: it waits for a signal that is there), is_placed (false: two of its steps have
--   the same position), is_consumed (false: a signal was consumed by a wait that has not ended).
-- Locks: none. Index: run primary key, step primary key, signal pulljobs_signal_run.
SELECT
    run.id,
    NOT EXISTS (
        SELECT
        FROM pulljobs_job AS job
        JOIN pulljobs_signal AS signal ON signal.run_id = run.id AND signal.name = run.waiting_for AND signal.consumed_at IS NULL
        WHERE job.id = run.id AND coalesce(run.message_id, job.message_id) = job.message_id AND run.waiting_consumer IS NULL AND job.state = 'QUEUED' AND job.retry_count = 0 AND job.available_at > clock_timestamp()
            AND signal.id < (
                ((date_part('epoch', clock_timestamp() - %(age)s::interval) * 1000)::bigint - ${epoch_milliseconds}) << 22
            )
    ) AS is_woken,
    NOT EXISTS (
        SELECT
        FROM pulljobs_step
        WHERE run_id = run.id
        HAVING count(*) <> count(DISTINCT position)
    ) AS is_placed,
    NOT EXISTS (
        SELECT
        FROM pulljobs_signal AS signal
        LEFT JOIN pulljobs_step AS step
            ON step.run_id = run.id AND step.name = signal.name AND step.number = signal.consumed_by
        WHERE signal.run_id = run.id AND signal.consumed_by IS NOT NULL AND step.ended_at IS NULL
    ) AS is_consumed
FROM pulljobs_run AS run
WHERE run.id > %(after)s::bigint
ORDER BY run.id
LIMIT %(wanted)s::int
