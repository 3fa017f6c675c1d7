-- Forget the steps of a suspended run and give it another input.
-- Event: none; in the transaction of the suspension, which has the job locked.
-- Parameters: run_id bigint, version int (of the present code), input jsonb (an array of one value).
-- Returns: consumer_id.
-- Locks: none but the job's. Index: run, step and job primary key, signal pulljobs_signal_run.
WITH forgotten AS (
    DELETE FROM pulljobs_step
    WHERE run_id = %(run_id)s::bigint
),
consumed AS (
    UPDATE pulljobs_signal
    SET consumed_by = NULL
    WHERE run_id = %(run_id)s::bigint AND consumed_by IS NOT NULL
),
run AS (
    UPDATE pulljobs_run
    SET
        input = %(input)s::jsonb,
        version = %(version)s::int,
        rounds = rounds + 1,
        waiting_for = NULL,
        waiting_batch = NULL,
        waiting_consumer = NULL
    WHERE id = %(run_id)s::bigint
)
SELECT consumer_id
FROM pulljobs_job
WHERE id = %(run_id)s::bigint
