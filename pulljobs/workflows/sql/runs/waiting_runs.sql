-- Count runs by the signal that they wait for.
-- Event: none.
-- Parameters: most int (runs that are read; beyond that the counts are lower bounds).
-- Returns: name, runs, of the 100 names with the most runs.
-- Locks: none. Index: run pulljobs_run_waiting, job primary key.
SELECT waiting_for AS name, count(*) AS runs
FROM (
    SELECT run.waiting_for
    FROM pulljobs_run AS run
    -- One by one: a join might scan the table.
    WHERE run.waiting_for IS NOT NULL AND (SELECT state FROM pulljobs_job WHERE id = run.id) = 'QUEUED'
    LIMIT %(most)s::int
) AS waiting
GROUP BY waiting_for
ORDER BY runs DESC, name
LIMIT 100
