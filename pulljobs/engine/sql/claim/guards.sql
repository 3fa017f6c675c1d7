-- Read the guards that claims of a consumer must respect.
-- Event: none.
-- Parameters: consumer_id bigint.
-- Returns: exclusive boolean (its keys), bounded boolean (its jobs in flight); no row: no such consumer.
-- Locks: none. Index: primary key.
SELECT exclusive_keys AS exclusive, max_in_flight IS NOT NULL AS bounded
FROM pulljobs_consumer
WHERE id = %(consumer_id)s::bigint
