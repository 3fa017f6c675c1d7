-- Read how far the settlements are counted.
-- Event: none.
-- Parameters: none.
-- Returns a row, or none before the first count: now, counted_at, open_from, counted_from; is_recount (the next count is of the whole
--   archive, because none was made or the numbers of transactions are those of another cluster).
-- Locks: none. Index: primary key.
SELECT
    clock_timestamp() AS now,
    counted_at,
    open_from,
    counted_from,
    snapshot IS NULL OR pg_snapshot_xmax(snapshot::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) AS is_recount
FROM pulljobs_count_progress
WHERE id = 1
