-- Delete signals to runs that ended before any worker began them, among the next old ones: no other row belongs to these.
-- Event: none.
-- Parameters: age interval, after bigint (ids above it), scanned int (signals that are read).
-- Returns one row: forgotten (number of deleted signals), last_id (of those that were read; NULL: there is no older signal after them).
-- Locks: the signals, skipping those of other sessions. Index: signal, run and job primary key.
WITH page AS MATERIALIZED (
    SELECT id
    FROM pulljobs_signal
    WHERE id > %(after)s::bigint
        AND id < (
            ((date_part('epoch', clock_timestamp() - %(age)s::interval) * 1000)::bigint - ${epoch_milliseconds}) << 22
        )
    ORDER BY id
    LIMIT %(scanned)s::int
),
forgotten AS (
    DELETE FROM pulljobs_signal
    WHERE id = ANY(ARRAY(
        SELECT id
        FROM pulljobs_signal AS signal
        WHERE id = ANY(ARRAY(SELECT id FROM page))
            -- One by one: a join might scan the tables.
            AND (SELECT id FROM pulljobs_run WHERE id = signal.run_id) IS NULL
            AND (SELECT id FROM pulljobs_job WHERE id = signal.run_id) IS NULL
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING id
)
SELECT
    (SELECT count(*) FROM forgotten) AS forgotten,
    CASE WHEN count(*) = %(scanned)s::int THEN max(id) END AS last_id
FROM page
