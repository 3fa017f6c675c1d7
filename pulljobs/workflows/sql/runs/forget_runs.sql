-- Delete runs whose jobs have left the job table and ended long ago, with their steps and signals, among the next old ones.
-- Event: none.
-- Parameters: age interval, after bigint (ids above it), scanned int (runs that are read).
-- Returns one row: forgotten (number of deleted runs), last_id (of those that were read; NULL: there is no older run after them).
-- Locks: the runs, skipping those of other sessions. Index: run, job and step primary key, archive job_id of the days within the age, signal pulljobs_signal_run.
WITH page AS MATERIALIZED (
    SELECT id
    FROM pulljobs_run
    -- A run began after its id was made, so the index ends where younger runs begin.
    WHERE id > %(after)s::bigint
        AND id < (
            ((date_part('epoch', clock_timestamp() - %(age)s::interval) * 1000)::bigint - ${epoch_milliseconds}) << 22
        )
    ORDER BY id
    LIMIT %(scanned)s::int
),
old AS MATERIALIZED (
    SELECT id
    FROM pulljobs_run AS run
    WHERE id = ANY(ARRAY(SELECT id FROM page))
        AND began_at < clock_timestamp() - %(age)s::interval
        -- One by one: a join might scan the tables.
        AND (SELECT id FROM pulljobs_job WHERE id = run.id) IS NULL
        -- A run may last for long. statement_timestamp() is stable, so older days of the archive are not read.
        AND (
            SELECT id
            FROM pulljobs_archived_job
            WHERE job_id = run.id
                AND id >= (
                    ((date_part('epoch', statement_timestamp() - %(age)s::interval) * 1000)::bigint - ${epoch_milliseconds}) << 22
                )
            LIMIT 1
        ) IS NULL
    FOR UPDATE SKIP LOCKED
),
step AS (
    DELETE FROM pulljobs_step
    WHERE run_id = ANY(ARRAY(SELECT id FROM old))
),
signal AS (
    DELETE FROM pulljobs_signal
    WHERE run_id = ANY(ARRAY(SELECT id FROM old))
),
forgotten AS (
    DELETE FROM pulljobs_run
    WHERE id = ANY(ARRAY(SELECT id FROM old))
    RETURNING id
)
SELECT
    (SELECT count(*) FROM forgotten) AS forgotten,
    CASE WHEN count(*) = %(scanned)s::int THEN max(id) END AS last_id
FROM page
