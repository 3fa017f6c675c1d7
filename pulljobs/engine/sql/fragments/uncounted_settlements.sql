-- Settlements that the counts do not include yet, and their numbers by slot (minute, or hour where they are older) and consumer.
-- Parameters: low, high bigint: all ids below `low` are counted, `high` is above every id; cap int: how many are read, lowest ids
--   first (NULL: all); is_recount boolean: nothing of the archive counts as counted.
-- Index: primary key of the archive, from `low` on; of jobs that may have been dead before, archived job_id.
progress AS MATERIALIZED (
    SELECT *, pg_snapshot_xmin(counted)::text::bigint AS lowest_xid
    FROM (
        SELECT coalesce(max(snapshot), '1:1:')::pg_snapshot AS counted, coalesce(max(newest_dead), 0) AS newest_dead
        FROM pulljobs_count_progress
        WHERE id = 1 AND NOT %(is_recount)s::boolean
    ) AS stored
),
settled AS MATERIALIZED (
    SELECT
        id,
        job_id,
        consumer_id,
        settled_at,
        -- Minutes are kept for three hours only: older settlements count in hours.
        date_bin(
            CASE WHEN settled_at >= now() - interval '3 hours' THEN interval '1 minute' ELSE interval '1 hour' END,
            settled_at,
            timestamptz 'epoch'
        ) AS slot,
        state = 'DEAD' AS is_dead,
        retry_count,
        deliveries = 1 AND retry_count = 0 AS is_first,
        date_part('epoch', claimed_at - created_at) AS wait_seconds,
        run_seconds
    FROM pulljobs_archived_job
    WHERE id >= %(low)s::bigint
        AND id < %(high)s::bigint
        -- Transactions are counted once each, in whatever order they commit.
        AND settled_xid >= (SELECT lowest_xid FROM progress)
        AND NOT pg_visible_in_snapshot(settled_xid::text::xid8, (SELECT counted FROM progress))
        -- A number that this cluster has not reached came with a dump, and a recount has counted it.
        AND (%(is_recount)s::boolean OR settled_xid < (SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint))
    ORDER BY id
    LIMIT %(cap)s::int
),
died AS MATERIALIZED (
    SELECT job_id, min(id) AS id
    FROM settled
    WHERE is_dead
    GROUP BY job_id
),
times AS (
    SELECT settled.slot, settled.consumer_id, measured.is_wait, bucket.number, count(*) AS jobs
    FROM settled
    LEFT JOIN died ON died.job_id = settled.job_id AND died.id < settled.id
    CROSS JOIN LATERAL (
        VALUES
        (false, settled.run_seconds),
        (
            true,
            CASE
                WHEN settled.is_first
                    AND died.id IS NULL
                    AND (
                        settled.job_id > (SELECT newest_dead FROM progress)
                        OR NOT EXISTS (
                            -- A redriven job counts its deliveries from zero. No death is older than its job, so that
                            -- earlier days are not read. The sum prevents an index scan by id, which is far too long.
                            SELECT
                            FROM pulljobs_archived_job AS death
                            WHERE death.job_id = settled.job_id
                                AND death.id >= settled.job_id
                                AND death.id + 0 < settled.id
                                AND death.state = 'DEAD'
                        )
                    )
                    THEN settled.wait_seconds
            END
        )
    ) AS measured (is_wait, seconds)
    CROSS JOIN LATERAL (
        -- See engine/histograms.py.
        SELECT CASE WHEN seconds < 1e-5 THEN -32768 ELSE ceil(ln(seconds) / ln(1.03::float8)) END::smallint AS number
    ) AS bucket
    WHERE measured.seconds IS NOT NULL
    GROUP BY settled.slot, settled.consumer_id, measured.is_wait, bucket.number
),
numbers AS (
    SELECT
        slot,
        consumer_id,
        count(*) FILTER (WHERE NOT is_dead) AS delivered,
        count(*) FILTER (WHERE is_dead) AS dead,
        sum(retry_count) AS retries
    FROM settled
    GROUP BY slot, consumer_id
)
