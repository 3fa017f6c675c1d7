-- Delete runs whose jobs have left the job table and that began long ago, with their steps and signals.
-- Event: none.
-- Parameters: age interval, wanted int.
-- Returns: id of each deleted run.
-- Locks: the runs, skipping those of other sessions. Index: run, job and step primary key, signal pulljobs_signal_run.
WITH old AS MATERIALIZED (
    SELECT id
    FROM pulljobs_run AS run
    -- A run began after its id was made, so the index ends where younger runs begin.
    WHERE id < (
            ((date_part('epoch', clock_timestamp() - %(age)s::interval) * 1000)::bigint - ${epoch_milliseconds}) << 22
        )
        AND began_at < clock_timestamp() - %(age)s::interval
        -- One by one: a join might scan the tables.
        AND (SELECT id FROM pulljobs_job WHERE id = run.id) IS NULL
    ORDER BY id
    LIMIT %(wanted)s::int
    FOR UPDATE SKIP LOCKED
),
step AS (
    DELETE FROM pulljobs_step
    WHERE run_id = ANY(ARRAY(SELECT id FROM old))
),
signal AS (
    DELETE FROM pulljobs_signal
    WHERE run_id = ANY(ARRAY(SELECT id FROM old))
)
DELETE FROM pulljobs_run
WHERE id = ANY(ARRAY(SELECT id FROM old))
RETURNING id
