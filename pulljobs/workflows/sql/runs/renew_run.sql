-- Forget all that a run has stored for a message whose place another one has taken: it begins again for that one.
-- Event: none; after a claim.
-- Parameters: run_id, message_id bigint (of the present message), lease_token uuid, workflow text, version int (of the present code).
-- Returns: batch_ids (of the forgotten steps). No row: the lease is lost.
-- Locks: the job, FOR SHARE, waiting, as take_signal.sql has it. Index: run, step and job primary key, signal pulljobs_signal_run.
WITH held AS MATERIALIZED (
    SELECT id
    FROM pulljobs_job
    WHERE id = %(run_id)s::bigint AND lease_token = %(lease_token)s::uuid AND state = 'INFLIGHT'
    FOR SHARE
),
run AS (
    UPDATE pulljobs_run
    SET
        message_id = %(message_id)s::bigint,
        workflow = %(workflow)s::text,
        version = %(version)s::int,
        waiting_for = NULL,
        waiting_batch = NULL,
        waiting_consumer = NULL,
        -- The steps get other idempotency keys.
        rounds = rounds + 1,
        input = NULL,
        began_at = now()
    WHERE id = (SELECT id FROM held)
),
step AS (
    DELETE FROM pulljobs_step
    WHERE run_id = (SELECT id FROM held)
    RETURNING batch_id
),
signal AS (
    -- Signals that were sent after the message are for it.
    DELETE FROM pulljobs_signal
    WHERE run_id = (SELECT id FROM held) AND id < %(message_id)s::bigint
)
SELECT ARRAY(SELECT batch_id FROM step WHERE batch_id IS NOT NULL) AS batch_ids
FROM held
