-- Keep other claims of a consumer that limits its jobs in flight or its rate out until the transaction ends.
-- Event: none; before allowance.sql, which then sees what they claimed.
-- Parameters: consumer_id bigint.
-- Returns: nothing.
-- Locks: the consumer's row, waiting for it. Index: primary key.
SELECT
FROM pulljobs_consumer
WHERE id = %(consumer_id)s::bigint
FOR NO KEY UPDATE
