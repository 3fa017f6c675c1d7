-- Keep other claims of the consumers of a group out until the transaction ends.
-- Event: none; before lock_consumer.sql.
-- Parameters: group_id bigint.
-- Returns: nothing.
-- Locks: the group's row, waiting for it. Index: primary key.
SELECT
FROM pulljobs_limit_group
WHERE id = %(group_id)s::bigint
FOR NO KEY UPDATE
