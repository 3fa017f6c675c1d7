-- Read the end of the next run of an export: all transactions below it have ended.
-- Events: none, it reads.
-- Parameters: none.
-- Returns: horizon bigint, system_identifier bigint, next_xid bigint (above all that have ended).
-- Locks: none. Index: none.
SELECT
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS horizon,
    (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS next_xid
