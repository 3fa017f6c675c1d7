-- Add the settlements that are not counted yet to the counts by minute, hour and day, of each consumer and of all.
-- Event: none; in the transaction that locked the progress (lock_counts.sql), after that statement: this one needs a newer snapshot.
-- Parameters: those of fragments/uncounted_settlements.sql; periods text[], widths, ages interval[] (of one length): what is counted,
--   and how old it may be. With is_recount the counts that it writes replace those that are stored.
-- Returns one row: settlements (how many were counted).
-- Locks: the counts that it writes, which no other statement locks meanwhile. Index: see the fragment; primary key of the counts.
WITH ${uncounted_settlements},
spread AS MATERIALIZED (
    -- Where settlements of a slot and a consumer count: up to three periods, the consumer and all (0). Numbers sort faster than texts.
    SELECT
        slot,
        consumer_id,
        span.period,
        owner.id AS owner_id,
        date_bin(span.width, slot, timestamptz 'epoch') AS starts_at,
        dense_rank() OVER (ORDER BY span.number, owner.id, date_bin(span.width, slot, timestamptz 'epoch'))::int AS target
    FROM numbers
    CROSS JOIN unnest(%(periods)s::text[], %(widths)s::interval[], %(ages)s::interval[])
        WITH ORDINALITY AS span (period, width, age, number)
    CROSS JOIN LATERAL (VALUES (consumer_id), (0)) AS owner (id)
    WHERE slot >= now() - span.age
),
added AS MATERIALIZED (
    SELECT
        target,
        min(period) AS period,
        min(owner_id) AS owner_id,
        min(starts_at) AS starts_at,
        sum(delivered) AS delivered,
        sum(dead) AS dead,
        sum(retries) AS retries
    FROM numbers
    JOIN spread USING (slot, consumer_id)
    GROUP BY target
),
bucket AS (
    SELECT target, is_wait, number, sum(jobs) AS jobs
    FROM (
        SELECT target, is_wait, number, jobs
        FROM times
        JOIN spread USING (slot, consumer_id)
        UNION ALL
        SELECT added.target, held.is_wait, held.number, held.jobs
        FROM added
        JOIN pulljobs_settlement_count AS stored
            ON stored.period = added.period AND stored.consumer_id = added.owner_id AND stored.starts_at = added.starts_at
        CROSS JOIN LATERAL (
            SELECT true AS is_wait, number, jobs
            FROM unnest(wait_buckets, wait_jobs) AS wait (number, jobs)
            UNION ALL
            SELECT false, number, jobs
            FROM unnest(run_buckets, run_jobs) AS run (number, jobs)
        ) AS held
        WHERE NOT %(is_recount)s::boolean
    ) AS added_and_stored
    GROUP BY target, is_wait, number
),
histogram AS (
    SELECT
        target,
        array_agg(number ORDER BY number) FILTER (WHERE is_wait) AS wait_buckets,
        array_agg(jobs ORDER BY number) FILTER (WHERE is_wait) AS wait_jobs,
        array_agg(number ORDER BY number) FILTER (WHERE NOT is_wait) AS run_buckets,
        array_agg(jobs ORDER BY number) FILTER (WHERE NOT is_wait) AS run_jobs
    FROM bucket
    GROUP BY target
),
written AS (
    INSERT INTO pulljobs_settlement_count AS stored (
        period, consumer_id, starts_at, delivered, dead, retries, wait_buckets, wait_jobs, run_buckets, run_jobs
    )
    SELECT
        period, owner_id, starts_at, delivered, dead, retries,
        coalesce(wait_buckets, '{}'), coalesce(wait_jobs, '{}'), coalesce(run_buckets, '{}'), coalesce(run_jobs, '{}')
    FROM added
    LEFT JOIN histogram USING (target)
    ON CONFLICT (period, consumer_id, starts_at) DO UPDATE
        SET
            delivered = excluded.delivered + CASE WHEN %(is_recount)s::boolean THEN 0 ELSE stored.delivered END,
            dead = excluded.dead + CASE WHEN %(is_recount)s::boolean THEN 0 ELSE stored.dead END,
            retries = excluded.retries + CASE WHEN %(is_recount)s::boolean THEN 0 ELSE stored.retries END,
            wait_buckets = excluded.wait_buckets,
            wait_jobs = excluded.wait_jobs,
            run_buckets = excluded.run_buckets,
            run_jobs = excluded.run_jobs
),
advanced AS (
    UPDATE pulljobs_count_progress AS progress
    SET
        snapshot = pg_current_snapshot()::text,
        -- The transaction began before its statement took the snapshot.
        counted_at = now(),
        open_from = CASE
            WHEN %(is_recount)s::boolean THEN now() - interval '1 day'
            -- Transactions that are open now began after the last count.
            WHEN pg_snapshot_xmin(pg_current_snapshot()) >= pg_snapshot_xmax(progress.snapshot::pg_snapshot) THEN counted_at
            ELSE open_from
        END,
        counted_from = CASE
            WHEN progress.snapshot IS NULL THEN coalesce(
                (SELECT min(slot) FROM numbers), date_bin('1 minute', now(), timestamptz 'epoch')
            )
            ELSE counted_from
        END,
        newest_dead = greatest(newest_dead, (SELECT max(job_id) FROM died))
    WHERE id = 1
)
SELECT coalesce(sum(delivered + dead), 0)::bigint AS settlements
FROM numbers
