-- Clauses FROM and WHERE that read the waiting jobs of a key in one priority, above the mark of the key, in the order of pulljobs_job_turn.
-- Parameters: consumer_id bigint. Needs allowed (key, mark_priority, mark_at, mark_id), level (priority) and clock (now).
FROM pulljobs_job
WHERE consumer_id = %(consumer_id)s::bigint
    AND turn_key = allowed.key
    -- Again, as a range: where it knows one key only, the planner would walk through the jobs of all keys.
    AND turn_key BETWEEN allowed.key AND allowed.key
    AND priority = level.priority
    AND (available_at, id) > (
        CASE WHEN allowed.mark_priority = level.priority THEN coalesce(allowed.mark_at, '-infinity') ELSE '-infinity' END,
        CASE WHEN allowed.mark_priority = level.priority AND allowed.mark_at IS NOT NULL THEN allowed.mark_id ELSE 0 END
    )
    AND available_at <= (SELECT now FROM clock)
    AND reason IS NULL
    AND state = 'QUEUED'
