-- Find runs with signals for which they were not woken, because the sender died after its commit.
-- Event: none.
-- Parameters: after bigint (ids of signals above it), wanted int, age interval (younger signals are left to their senders).
-- Returns: run_ids bigint[] (NULL: none), last_id of the signals that were read (NULL: there are no more after them).
-- Locks: none. Index: signal pulljobs_signal_new.
SELECT
    array_agg(DISTINCT run_id ORDER BY run_id) AS run_ids,
    CASE WHEN count(*) = %(wanted)s::int THEN max(id) END AS last_id
FROM (
    SELECT id, run_id
    FROM pulljobs_signal
    WHERE is_new
        AND id > %(after)s::bigint
        AND id < (
            ((date_part('epoch', clock_timestamp() - %(age)s::interval) * 1000)::bigint - ${epoch_milliseconds}) << 22
        )
    ORDER BY id
    LIMIT %(wanted)s::int
) AS late
