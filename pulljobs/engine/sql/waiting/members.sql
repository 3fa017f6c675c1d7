-- Find the consumers that share the bound on jobs in flight of these consumers' groups.
-- Event: none.
-- Parameters: consumer_ids bigint[].
-- Returns: id, each once, those of the consumers too, unless their group has no such bound.
-- Locks: none. Index: consumer and group primary key, consumer limit_group.
SELECT DISTINCT other.id
FROM pulljobs_consumer AS consumer
JOIN pulljobs_limit_group AS shared ON shared.id = consumer.limit_group_id
JOIN pulljobs_consumer AS other ON other.limit_group_id = shared.id
WHERE consumer.id = ANY(%(consumer_ids)s::bigint[])
    AND shared.max_in_flight IS NOT NULL
