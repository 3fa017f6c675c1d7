-- Keep other claims of a consumer that bounds its jobs in flight out until the transaction ends.
-- Event: none; before room.sql, which then sees what they claimed.
-- Parameters: consumer_id bigint.
-- Returns: nothing.
-- Locks: the consumer's row, waiting for it. Index: primary key.
SELECT
FROM pulljobs_consumer
WHERE id = %(consumer_id)s::bigint
FOR NO KEY UPDATE
