-- Find the transaction that holds an export back: the oldest open one that has written, in any database.
-- Events: none, it reads.
-- Parameters: none.
-- Returns: who text, since timestamptz, age interval; NULL where this role may not see them. No row: no transaction.
-- Locks: none. Index: none.
SELECT who, since, clock_timestamp() - since AS age
FROM (
    SELECT 'process ' || pid AS who, xact_start AS since, backend_xid AS xid
    FROM pg_stat_activity
    WHERE backend_xid IS NOT NULL AND pid <> pg_backend_pid()
    UNION ALL
    SELECT 'prepared transaction ' || gid, prepared, transaction
    FROM pg_prepared_xacts
) AS open
ORDER BY age(xid) DESC, since
LIMIT 1
