-- Note that a job that was claimed by its id holds a slot of its key, and take its cost from the tokens of the key.
-- Event: none; after take.sql, in the transaction of lock_turn.sql.
-- Parameters: consumer_id bigint, key text (locked), job_id bigint, cost int.
-- Returns: nothing.
-- Locks: held already. Index: consumer, flow key and job primary key.
WITH clock AS MATERIALIZED (
    SELECT clock_timestamp() AS now
),
keyed AS (
    -- The end of the job frees the slot of its turn_key.
    UPDATE pulljobs_job
    SET turn_key = %(key)s::text
    WHERE id = %(job_id)s::bigint AND turn_key IS DISTINCT FROM %(key)s::text AND state = 'INFLIGHT'
)
UPDATE pulljobs_flow_key AS row
SET
    holders = CASE WHEN consumer.max_in_flight_per_key IS NULL THEN '{}' ELSE row.holders || %(job_id)s::bigint END,
    tokens = CASE
        WHEN consumer.key_rate_per_second IS NOT NULL THEN coalesce(
            least(
                size.burst,
                row.tokens + consumer.key_rate_per_second * greatest(date_part('epoch', clock.now - row.filled_at), 0)
            ),
            size.burst
        ) - least(%(cost)s::int, size.burst)
    END,
    filled_at = CASE WHEN consumer.key_rate_per_second IS NOT NULL THEN clock.now END,
    charged_since = CASE WHEN consumer.key_rate_per_second IS NOT NULL THEN coalesce(row.charged_since, clock.now) END,
    writer = pg_current_xact_id()
FROM pulljobs_consumer AS consumer
CROSS JOIN clock
CROSS JOIN LATERAL (
    SELECT coalesce(consumer.rate_burst::float8, greatest(consumer.key_rate_per_second, 1)) AS burst
) AS size
WHERE consumer.id = %(consumer_id)s::bigint
    AND row.consumer_id = %(consumer_id)s::bigint
    AND row.key = %(key)s::text
