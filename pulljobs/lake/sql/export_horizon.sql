-- Up to where the next run of an export may go: all transactions below have ended.
-- Events: none, it reads.
-- Parameters: none.
-- Returns: horizon bigint, system_identifier bigint, next_xid bigint (no lower than any that was ever given out).
-- Locks: none. Index: none.
SELECT
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon,
    (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xid
