-- Delete old signals to runs that ended before any worker began them: no other row belongs to these.
-- Event: none.
-- Parameters: age interval, wanted int.
-- Returns: id of each deleted signal.
-- Locks: the signals, skipping those of other sessions. Index: signal, run and job primary key.
DELETE FROM pulljobs_signal
WHERE id = ANY(ARRAY(
    SELECT id
    FROM pulljobs_signal AS signal
    WHERE id < (
            ((date_part('epoch', clock_timestamp() - %(age)s::interval) * 1000)::bigint - ${epoch_milliseconds}) << 22
        )
        -- One by one: a join might scan the tables.
        AND (SELECT id FROM pulljobs_run WHERE id = signal.run_id) IS NULL
        AND (SELECT id FROM pulljobs_job WHERE id = signal.run_id) IS NULL
    ORDER BY id
    LIMIT %(wanted)s::int
    FOR UPDATE SKIP LOCKED
))
RETURNING id
