-- Read the guards that claims of a consumer must respect.
-- Event: none.
-- Parameters: consumer_id bigint.
-- Returns: exclusive boolean (its keys), limited boolean (its jobs in flight or its rate, or those of
--   its group), group_id bigint (NULL: none), by_turn boolean (its keys take turns or have limits); no row: no such consumer.
-- Locks: none. Index: primary key.
SELECT
    exclusive_keys AS exclusive,
    max_in_flight IS NOT NULL OR rate_per_second IS NOT NULL OR limit_group_id IS NOT NULL AS limited,
    limit_group_id AS group_id,
    takes_turns AS by_turn
FROM pulljobs_consumer
WHERE id = %(consumer_id)s::bigint
