-- Read how far the write-ahead log of the primary is on disk, and which cluster it belongs to.
-- Events: none, it reads.
-- Parameters: none.
-- Returns: lsn text, system_identifier bigint.
-- Locks: none. Index: none.
SELECT
    pg_current_wal_flush_lsn()::text AS lsn,
    (SELECT system_identifier FROM pg_control_system()) AS system_identifier
