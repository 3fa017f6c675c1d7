-- Find the messages with a key, to erase their contents.
-- Events: none, it reads.
-- Parameters: key text.
-- Returns: id.
-- Locks: none. Index: none, it reads all messages.
SELECT id
FROM pulljobs_message
WHERE key = %(key)s::text
ORDER BY id
