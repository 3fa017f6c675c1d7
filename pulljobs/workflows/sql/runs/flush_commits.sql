-- Wait until the commits before this one are on disk, and on the standbys that the server waits for.
-- Event: none; a transaction of its own, on the connection of those commits. The message only makes it one that has something to write.
-- Parameters: none.
-- Returns: nothing of use.
-- Locks: none. Index: none.
SELECT pg_logical_emit_message(true, 'pulljobs', ''::text)
