-- Read counts of settlements, and the settlements that are not counted yet, in one snapshot: no settlement is counted twice.
-- Event: none.
-- Parameters: those of fragments/uncounted_settlements.sql; periods text[], since, until timestamptz[], are_drawn, with_times boolean[]
--   (of one length): which counts, of which of the two lists of consumers, and whether with histograms; drawn_ids, listed_ids bigint[]:
--   consumers (0: all).
-- Returns rows: span (number of the counts that were wanted, from 1; NULL: not counted yet), starts_at, consumer_id, delivered, dead, retries, wait_buckets, wait_jobs, run_buckets,
--   run_jobs, last_settled_at (of what is not counted yet).
-- Locks: none. Index: primary key of the counts; see the fragment.
WITH ${uncounted_settlements},
histogram AS (
    SELECT
        slot,
        consumer_id,
        array_agg(number) FILTER (WHERE is_wait) AS wait_buckets,
        array_agg(jobs) FILTER (WHERE is_wait) AS wait_jobs,
        array_agg(number) FILTER (WHERE NOT is_wait) AS run_buckets,
        array_agg(jobs) FILTER (WHERE NOT is_wait) AS run_jobs
    FROM times
    GROUP BY slot, consumer_id
)
SELECT
    wanted.span,
    counted.starts_at,
    counted.consumer_id,
    counted.delivered,
    counted.dead,
    counted.retries,
    CASE WHEN wanted.with_times THEN counted.wait_buckets END AS wait_buckets,
    CASE WHEN wanted.with_times THEN counted.wait_jobs END AS wait_jobs,
    CASE WHEN wanted.with_times THEN counted.run_buckets END AS run_buckets,
    CASE WHEN wanted.with_times THEN counted.run_jobs END AS run_jobs,
    NULL::timestamptz AS last_settled_at
FROM unnest(
    %(periods)s::text[],
    %(since)s::timestamptz[],
    %(until)s::timestamptz[],
    %(are_drawn)s::boolean[],
    %(with_times)s::boolean[]
) WITH ORDINALITY AS wanted (period, since, until, is_drawn, with_times, span)
CROSS JOIN LATERAL unnest(
    CASE WHEN wanted.is_drawn THEN %(drawn_ids)s::bigint[] ELSE %(listed_ids)s::bigint[] END
) AS owner (id)
CROSS JOIN LATERAL (
    SELECT *
    FROM pulljobs_settlement_count
    WHERE period = wanted.period
        AND consumer_id = owner.id
        AND starts_at >= wanted.since
        AND starts_at < wanted.until
        AND NOT %(is_recount)s::boolean
    -- No range has as many rows. With an order and a limit, every plan uses the index.
    ORDER BY starts_at
    LIMIT 1000
) AS counted
UNION ALL
SELECT
    NULL,
    numbers.slot,
    numbers.consumer_id,
    numbers.delivered,
    numbers.dead,
    numbers.retries,
    histogram.wait_buckets,
    histogram.wait_jobs,
    histogram.run_buckets,
    histogram.run_jobs,
    (SELECT max(settled_at) FROM settled)
FROM numbers
LEFT JOIN histogram USING (slot, consumer_id)
