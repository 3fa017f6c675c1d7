-- The buckets of a consumer and of its group as they are now.
-- A token bucket has the tokens of its row and those that came in since, at most its burst. A window is full when it begins.
-- It needs the CTEs holder (limits of the consumer and the group), bucket (their rows; without a row it is full) and clock (now), which is
-- read after the buckets are locked.
level AS MATERIALIZED (
    SELECT
        holder.consumer_id,
        holder.group_id,
        holder.max_in_flight,
        holder.rate_per_second AS per_second,
        size.burst,
        holder.window_seconds,
        clock.now,
        date_part('epoch', began + make_interval(secs => holder.window_seconds) - clock.now) AS seconds_to_window,
        CASE
            WHEN holder.rate_per_second IS NULL THEN NULL
            WHEN bucket.tokens IS NULL OR bucket.filled_at < began THEN size.burst
            -- If the number of tokens of the present window was changed, those that it has given count.
            WHEN bucket.window_seconds = holder.window_seconds THEN least(size.burst, bucket.tokens + size.burst - bucket.burst)
            WHEN holder.window_seconds IS NOT NULL THEN least(size.burst, bucket.tokens)
            -- A changed rate counts from the first claim that meets it, and the lower rate until then. So a change of the
            -- consumer need not lock the bucket.
            ELSE least(
                size.burst,
                bucket.tokens + least(bucket.per_second, holder.rate_per_second)
                    * greatest(date_part('epoch', clock.now - bucket.filled_at), 0)
            )
        END AS tokens,
        -- Without this a bucket without a token would never learn of a higher rate, nor of a clock that was set back.
        bucket.tokens IS NOT NULL AND (
            bucket.per_second IS DISTINCT FROM holder.rate_per_second
            OR bucket.burst <> size.burst
            OR bucket.window_seconds IS DISTINCT FROM holder.window_seconds
            OR bucket.filled_at > clock.now
        ) AS is_outdated
    FROM holder
    CROSS JOIN clock
    CROSS JOIN LATERAL (
        SELECT
            CASE
                WHEN holder.window_seconds IS NOT NULL THEN round(holder.rate_per_second * holder.window_seconds)
                ELSE coalesce(holder.rate_burst::float8, greatest(holder.rate_per_second, 1))
            END AS burst,
            date_bin(make_interval(secs => holder.window_seconds), clock.now, timestamptz 'epoch') AS began
    ) AS size
    LEFT JOIN bucket USING (consumer_id, group_id)
)
