-- Lock the counts of settlements, unless another process counts, in the transaction that counts.
-- Event: none.
-- Parameters: none.
-- Returns a row, or none if another transaction has locked it: those of progress_of_counts.sql.
-- Locks: the row of the progress. Index: primary key.
SELECT
    clock_timestamp() AS now,
    counted_at,
    open_from,
    counted_from,
    snapshot IS NULL OR pg_snapshot_xmax(snapshot::pg_snapshot) > pg_snapshot_xmax(pg_current_snapshot()) AS is_recount
FROM pulljobs_count_progress
WHERE id = 1
FOR UPDATE SKIP LOCKED
