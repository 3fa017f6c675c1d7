-- The limits of a consumer, and those of its group, which come first, as their locks do.
-- Parameters: consumer_id bigint, group_id bigint (NULL: it has none). No row: the consumer has another group, or does not exist.
consumer AS MATERIALIZED (
    SELECT *
    FROM pulljobs_consumer
    WHERE id = %(consumer_id)s::bigint AND limit_group_id IS NOT DISTINCT FROM %(group_id)s::bigint
),
holder AS MATERIALIZED (
    SELECT 0::bigint AS consumer_id, shared.id AS group_id, shared.max_in_flight, shared.rate_per_second, shared.rate_burst, shared.window_seconds
    FROM consumer
    JOIN pulljobs_limit_group AS shared ON shared.id = consumer.limit_group_id
    UNION ALL
    SELECT id, 0, max_in_flight, rate_per_second, rate_burst, window_seconds
    FROM consumer
)
