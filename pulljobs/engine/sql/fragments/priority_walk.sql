-- Common table expressions that list the priorities of a consumer, the highest first, and where to enter each.
-- For a query WITH RECURSIVE. Gives walk (priority, mark_at, mark_id).
-- Parameters: consumer_id bigint; the low-water marks (low_water_marks.py), by falling priority: priorities int[],
--   mark_ats timestamptz[], mark_ids bigint[]; and the ranges between them, where there may be priorities that the
--   caller does not know: gap_tops, gap_bottoms int[].
discovered (priority, bottom) AS (
    SELECT job.priority, gap.bottom
    FROM unnest(%(gap_tops)s::int[], %(gap_bottoms)s::int[]) AS gap (top, bottom)
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint AND priority < gap.top AND priority > gap.bottom
        ORDER BY priority DESC
        LIMIT 1
    ) AS job
    UNION ALL
    SELECT job.priority, discovered.bottom
    FROM discovered
    CROSS JOIN LATERAL (
        SELECT priority
        FROM pulljobs_job
        WHERE consumer_id = %(consumer_id)s::bigint
            AND priority < discovered.priority AND priority > discovered.bottom
        ORDER BY priority DESC
        LIMIT 1
    ) AS job
),
walk AS MATERIALIZED (
    SELECT priority, mark_at, mark_id
    FROM unnest(%(priorities)s::int[], %(mark_ats)s::timestamptz[], %(mark_ids)s::bigint[])
        AS mark (priority, mark_at, mark_id)
    UNION ALL
    SELECT priority, '-infinity', 0
    FROM discovered
    ORDER BY priority DESC
)
