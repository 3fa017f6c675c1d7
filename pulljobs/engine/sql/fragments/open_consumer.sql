-- Common table expressions of a claim: its consumer, and a refusal where the claim may take nothing, or goes by the wrong statement.
-- Parameters: consumer_id bigint, via text, lease_duration interval (NULL: the consumer's), guarded boolean (the caller has checked
--   max_in_flight and the rate). Needs clock (now). Gives asked, and consumer, which has no row if nothing may be claimed.
asked AS MATERIALIZED (
    SELECT
        consumer.id,
        coalesce(%(lease_duration)s::interval, consumer.lease_duration) AS lease_duration,
        (consumer.type = 'push') = (%(via)s::text = 'push') AS is_open,
        greatest(consumer.paused_until, channel.paused_until, consumer.throttled_until) AS closed_until,
        consumer.max_in_flight_per_key AS slots,  -- only in claim_turns
        consumer.key_rate_per_second AS per_second,  -- only in claim_turns
        coalesce(consumer.rate_burst::float8, greatest(consumer.key_rate_per_second, 1)) AS burst,  -- only in claim_turns
        consumer.fair_by_key,  -- only in claim_turns
        CASE
            WHEN consumer.deleted_at IS NOT NULL THEN 'deleted'
            WHEN greatest(consumer.paused_until, channel.paused_until) > now THEN 'paused'
            WHEN consumer.throttled_until > now THEN 'throttled'
            WHEN (consumer.max_in_flight IS NOT NULL AND NOT %(guarded)s::boolean)
                OR (consumer.rate_per_second IS NOT NULL AND NOT %(guarded)s::boolean)
                OR (consumer.limit_group_id IS NOT NULL AND NOT %(guarded)s::boolean)
                OR consumer.exclusive_keys  -- only in claim
                OR NOT consumer.exclusive_keys  -- only in claim_keyed
                OR consumer.takes_turns  -- not in claim_turns
                OR NOT consumer.takes_turns  -- only in claim_turns
                THEN 'unguarded'
        END AS refusal
    FROM pulljobs_consumer AS consumer
    JOIN pulljobs_channel AS channel ON channel.id = consumer.channel_id
    CROSS JOIN clock
    WHERE consumer.id = %(consumer_id)s::bigint
),
consumer AS MATERIALIZED (
    SELECT *
    FROM asked
    WHERE refusal IS NULL AND is_open
)
