-- Clause FROM that reads the jobs (holder.id) which still hold a slot of a key, by the column holders of its row. A settled job holds none.
FROM unnest(holders) AS holder (id)
CROSS JOIN LATERAL (
    -- One by one: a join might scan the table.
    SELECT
    FROM pulljobs_job
    WHERE id = holder.id AND state = 'INFLIGHT'
    LIMIT 1
) AS job
