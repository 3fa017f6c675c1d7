-- The bucket of a consumer as it is now: least of its burst and of what came in since it was filled.
-- It needs the CTEs clock (now), which is read after the bucket is locked, and bucket (its row, or none: then it is full).
-- Parameters: consumer_id.
level AS MATERIALIZED (
    SELECT
        consumer.max_in_flight,
        consumer.rate_per_second AS per_second,
        size.burst,
        clock.now,
        CASE
            WHEN consumer.rate_per_second IS NULL THEN NULL
            WHEN bucket.consumer_id IS NULL THEN size.burst
            -- A changed rate counts from the first claim that meets it, and the lower rate until then. So a change of the
            -- consumer need not lock the bucket.
            ELSE least(
                size.burst,
                bucket.tokens + least(bucket.per_second, consumer.rate_per_second)
                    * greatest(date_part('epoch', clock.now - bucket.filled_at), 0)
            )
        END AS tokens,
        -- Without this a bucket without a token would never learn of a higher rate, nor of a clock that was set back.
        coalesce(bucket.per_second <> consumer.rate_per_second OR bucket.filled_at > clock.now, false) AS is_outdated
    FROM pulljobs_consumer AS consumer
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT coalesce(consumer.rate_burst::float8, greatest(consumer.rate_per_second, 1)) AS burst
    ) AS size
    LEFT JOIN bucket ON true
    WHERE consumer.id = %(consumer_id)s::bigint
)
