-- Wait until the commits before this one are on disk, and on the standbys that the server waits for.
-- Event: none. An own transaction waits at its end, and the caller's at its commit. The message only makes the transaction one that has something to write.
-- Parameters: none.
-- Returns: nothing of use.
-- Locks: none. Index: none.
SELECT pg_logical_emit_message(true, 'pulljobs', ''::text)
