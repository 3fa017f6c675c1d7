-- Read on a replica how far it is behind a position of the primary's write-ahead log.
-- Events: none, it reads.
-- Parameters: lsn text (of primary_position).
-- Returns: is_standby boolean, bytes_behind bigint (NULL without a log that is replayed), system_identifier bigint.
-- Locks: none. Index: none.
SELECT
    pg_is_in_recovery() AS is_standby,
    pg_wal_lsn_diff(%(lsn)s::pg_lsn, pg_last_wal_replay_lsn())::bigint AS bytes_behind,
    (SELECT system_identifier FROM pg_control_system()) AS system_identifier
