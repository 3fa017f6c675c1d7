-- Take the costs of claimed jobs out of a bucket, if it has so many tokens.
-- Event: none; after a claim, in the transaction of allowance.sql, which has locked the bucket.
-- Parameters: job_ids bigint[] in the order of the claim; of allowance.sql: consumer_id, group_id bigint, tokens, per_second, burst,
--   window_seconds float8, read_at timestamptz.
-- Returns one row: fit int (as many of the jobs, from the first on, as there are tokens for; if not all, nothing was written), spent
--   float8 (costs of all jobs), next_cost float8 (of the first job that does not fit, else NULL).
-- Locks: the bucket, which is locked already. Index: job and bucket primary key; the update is HOT.
WITH job AS MATERIALIZED (
    SELECT place, price, sum(price) OVER (ORDER BY place) AS total
    FROM unnest(%(job_ids)s::bigint[]) WITH ORDINALITY AS member (id, place)
    CROSS JOIN LATERAL (
        -- No job costs more than the bucket takes, so none waits for ever. One by one: a join might scan the table.
        SELECT least(coalesce(cost, 1), %(burst)s::float8) AS price
        FROM pulljobs_job
        WHERE id = member.id
        LIMIT 1
    ) AS job
),
bill AS MATERIALIZED (
    SELECT
        count(*) FILTER (WHERE total <= %(tokens)s::float8) AS fit,
        count(*) AS jobs,
        coalesce(max(total), 0) AS spent,
        (array_agg(price ORDER BY place) FILTER (WHERE total > %(tokens)s::float8))[1] AS next_cost
    FROM job
),
written AS (
    INSERT INTO pulljobs_flow_bucket AS bucket (
        consumer_id, group_id, tokens, filled_at, per_second, burst, window_seconds, charged_since
    )
    SELECT
        %(consumer_id)s::bigint,
        %(group_id)s::bigint,
        -- Tokens at this moment, which is after the time of the claim: the claim may have waited in between, even into the next
        -- window, which then pays for it.
        CASE
            WHEN %(window_seconds)s::float8 IS NULL THEN least(
                %(burst)s::float8,
                %(tokens)s::float8
                    + %(per_second)s::float8 * greatest(date_part('epoch', clock.now - %(read_at)s::timestamptz), 0)
            )
            WHEN date_bin(make_interval(secs => %(window_seconds)s::float8), clock.now, timestamptz 'epoch') > %(read_at)s::timestamptz
                THEN %(burst)s::float8
            ELSE %(tokens)s::float8
        END - bill.spent,
        clock.now,
        %(per_second)s::float8,
        %(burst)s::float8,
        %(window_seconds)s::float8,
        %(read_at)s::timestamptz
    FROM bill
    CROSS JOIN (SELECT clock_timestamp() AS now OFFSET 0) AS clock
    WHERE bill.fit = bill.jobs
    ON CONFLICT (consumer_id, group_id) DO UPDATE
    SET
        tokens = excluded.tokens,
        filled_at = excluded.filled_at,
        per_second = excluded.per_second,
        -- Jobs that were claimed from a smaller bucket may have paid less than they would get back from now on.
        charged_since = CASE WHEN excluded.burst > bucket.burst THEN excluded.charged_since ELSE bucket.charged_since END,
        burst = excluded.burst,
        window_seconds = excluded.window_seconds
)
SELECT fit, spent, next_cost
FROM bill
